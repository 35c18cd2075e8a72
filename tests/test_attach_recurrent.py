"""Recurrent layers: what they hand on is gated, in every shape they have, and cells inside the recurrence."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import gateon
from gate_models import Net
from gateon.availability.relevance import outgoing
from rounding import assert_same

pytestmark = pytest.mark.numeric
double = torch.float64

LAYERS = {
    "lstm": lambda: nn.LSTM(3, 4, batch_first=True),
    "gru, time first": lambda: nn.GRU(3, 4, num_layers=2),
    "rnn": lambda: nn.RNN(3, 4, batch_first=True),
    "both directions": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
    "projected": lambda: nn.LSTM(3, 6, proj_size=4, batch_first=True),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


def gated(name, read, contexts=3):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    units = 8 if layer.bidirectional else 4
    model = Net(lambda s, x: s.out(read(s.rnn(x))), rnn=layer, out=nn.Linear(units, 2)).double()
    plain = copy.deepcopy(layer)
    gates = gateon.attach(model, contexts, density=0.5, example=torch.zeros(2, 5, 3, dtype=double))
    return model, plain, gates


def top_of(layer, hidden):
    """The hidden state of the top layer, directions side by side."""
    n = 2 if layer.bidirectional else 1
    return torch.cat(list(hidden[-n:]), -1)


def hidden_of(result):
    state = result[1]
    return state[0] if isinstance(state, tuple) else state


@every_layer
def test_outputs_and_the_last_state_of_the_top_layer_are_gated_and_the_rest_is_not(name):
    model, plain, gates = gated(name, lambda result: result[0])
    assert gates.sites["rnn"].gated
    x, plain = torch.randn(5, 2, 3, dtype=double), plain.double()
    if plain.batch_first:
        x = x.transpose(0, 1)
    for k in range(3):
        gates.switch(k)
        g = gates.gain()["rnn"]
        made, expected = model.rnn(x), plain(x)
        assert_same(made[0], g * expected[0])
        assert_same(top_of(plain, hidden_of(made)), g * top_of(plain, hidden_of(expected)))
        n = 2 if plain.bidirectional else 1
        assert torch.equal(hidden_of(made)[:-n], hidden_of(expected)[:-n])
        if isinstance(expected[1], tuple):
            assert torch.equal(made[1][1], expected[1][1]), "the state of an LSTM's cells"
        alone = model.rnn(x.select(0 if plain.batch_first else 1, 0))
        assert_same(alone[0], made[0].select(0 if plain.batch_first else 1, 0))
        assert_same(hidden_of(alone), hidden_of(made)[:, 0])


@every_layer
def test_each_sample_of_a_batch_may_be_in_its_own_context(name):
    model, plain, gates = gated(name, lambda result: result[0])
    samples = 0 if plain.batch_first else 1
    x = torch.randn(4, 5, 3, dtype=double) if samples == 0 else torch.randn(5, 4, 3, dtype=double)
    contexts = [2, 0, 1, 0]
    gates.switch(contexts)
    mixed = model.rnn(x)
    for n, k in enumerate(contexts):
        gates.switch(k)
        one = model.rnn(x)
        assert_same(mixed[0].select(samples, n), one[0].select(samples, n))
        assert_same(hidden_of(mixed)[:, n], hidden_of(one)[:, n])


@pytest.mark.parametrize("contexts", [1, [2, 0, 1]])
def test_sequences_of_several_lengths_are_gated_as_they_are_packed(contexts):
    model, _, gates = gated("lstm", lambda result: result[0])
    gates.switch(contexts)
    x, lengths = torch.randn(3, 5, 3, dtype=double), [2, 5, 3]
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    made, (hidden, _) = model.rnn(packed)
    made, _ = pad_packed_sequence(made, batch_first=True)
    padded = model.rnn(x)[0]
    for n, length in enumerate(lengths):
        assert_same(made[n, :length], padded[n, :length])
        assert_same(hidden[0, n], padded[n, length - 1])


def test_relevance_is_that_of_the_outputs_of_every_sample_also_with_time_first():
    model, _, gates = gated("gru, time first", lambda result: result[0])
    gates.switch(1)
    handle = gateon.obstruct(torch.optim.SGD(model.parameters(), lr=0.1), gates)
    # no single unit owns a weight of the recurrence: each has an availability of its own
    assert {n.rpartition(".")[2] for n in handle.availability} >= {"weight_hh_l0", "weight_ih_l1"}
    tap = torch.zeros(4, dtype=double, requires_grad=True)
    gates.gates["rnn"].observe("gradient", tap)
    seen = {}
    hook = model.out.register_forward_pre_hook(
        lambda m, args: (args[0].retain_grad(), seen.update(h=args[0]))[0]
    )
    model(torch.randn(5, 4, 3, dtype=double)).square().sum().backward()
    hook.remove()
    expected = (seen["h"].grad * seen["h"]).sum(0).square().sum(0)
    assert_same(tap.grad, expected)


def test_classifiers_that_read_the_last_state_learn_their_gates():
    model, _, gates = gated("lstm", lambda result: result[1][0][-1])
    model(torch.randn(4, 5, 3, dtype=double)).square().sum().backward()
    grad = gates.gates["rnn"].weight.grad[0]
    assert grad[gates.gain()["rnn"] > 0].ne(0).all()


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_cell_is_gated_inside_the_recurrence(kind):
    def run(s, x):
        state = None
        for step in x.unbind(1):
            state = s.cell(step, state)
        return s.out(state[0] if isinstance(state, tuple) else state)

    torch.manual_seed(0)
    model = Net(run, cell=kind(3, 4), out=nn.Linear(4, 2)).double()
    x = torch.randn(2, 5, 3, dtype=double)
    gates = gateon.attach(model, contexts=2, density=0.5, example=x)
    g, y = gates.gain()["cell"], model(x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, rate=0.1)
    assert handle.availability.keys() == {"cell"}, "all of a cell's weights belong to its units"
    model(x).square().sum().backward()
    shut, rows = g == 0, model.cell.weight_hh.shape[0] // 4
    assert shut.any()
    for p in model.cell.parameters(recurse=False):
        assert not p.grad[shut.repeat(rows)].any(), "what is closed takes no part"
    assert not model.cell.weight_hh.grad[:, shut].any()
    gates.detach()
    state = None
    for step in x.unbind(1):
        state = model.cell(step, state)
        state = (g * state[0], state[1]) if isinstance(state, tuple) else g * state
    assert_same(y, model.out(state[0] if isinstance(state, tuple) else state))


def test_a_gain_that_no_weight_can_take_is_not_folded():
    model, _, _ = gated("lstm", lambda result: result[0])
    with pytest.raises(ValueError, match=r"'rnn' has no weights to fold into"):
        gateon.compact(model, 0, fold=True)


def test_what_a_recurrent_layer_reads_is_known():
    model = Net(
        lambda s, x: s.out(s.rnn(s.words(x))[0]),
        words=nn.Linear(3, 5),
        rnn=nn.LSTM(5, 4, batch_first=True),
        out=nn.Linear(4, 2),
    )
    x = torch.randn(2, 6, 3)
    gates = gateon.attach(model, density=0.5, example=x)
    assert gates.sites["words"].readers == ("rnn",) and not gates.sites["words"].narrows
    with pytest.raises(ValueError, match="recurrent layer that reads site 'words'"):
        gateon.obstruct(
            torch.optim.SGD(model.parameters(), lr=0.1), gates, relevance="next-layer-gated"
        )


def test_next_layer_relevance_sees_the_input_weights_of_both_directions():
    reader = nn.LSTM(5, 4, bidirectional=True)
    squares = reader.weight_ih_l0.square().sum(0) + reader.weight_ih_l0_reverse.square().sum(0)
    torch.testing.assert_close(outgoing(reader, 5), squares)
