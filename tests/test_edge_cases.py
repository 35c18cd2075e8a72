"""Unusual but legitimate uses: each must give the right result, or one clear sentence."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

import gateon
from gateon.anatomy.sites import find_sites

double = torch.float64
pytestmark = pytest.mark.numeric
SGD = partial(torch.optim.SGD, lr=0.1)


def mlp(inputs=6, hidden=(20, 20), outputs=3, dtype=torch.float32, activation=nn.ReLU):
    torch.manual_seed(0)
    sizes = [inputs, *hidden]
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs)).to(dtype)


def data(seed, batches=20, samples=16, inputs=6, classes=3, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(samples, inputs, generator=generator, dtype=dtype),
            torch.randint(0, classes, (samples,), generator=generator),
        )
        for _ in range(batches)
    ]


def train(model, optimizer, batches):
    for x, y in batches:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def learner(method, *, compact=True, model=None, optimizer=SGD, **options):
    return gateon.Learner(
        mlp() if model is None else model,
        optimizer=optimizer,
        method=method,
        compact=compact,
        **options,
    )


def distance(a, b):
    return max((p - q).abs().max().item() for p, q in zip(a, b, strict=True))


# Contexts inferred.


@pytest.mark.parametrize("as_mapping", [False, True])
@pytest.mark.parametrize("samples", [64, 256, 300])
def test_the_detector_finds_switches_though_the_caller_reuses_its_buffers(samples, as_mapping):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = mlp(20, (64,), 4)

        def forward(self, pixels):
            return self.inner(pixels)

    learn = learner(
        gateon.GateON(),
        model=Named() if as_mapping else mlp(20, (64,), 4),
        optimizer=partial(torch.optim.Adam, lr=5e-3),
        contexts=gateon.ContextDetector(),
    )
    generator = torch.Generator().manual_seed(5)
    prototypes = [torch.randn(4, 20, generator=generator) * 2 for _ in range(3)]
    x, y, found = torch.empty(samples, 20), torch.empty(samples, dtype=torch.long), []
    for task in range(3):
        for _ in range(40):
            y.copy_(torch.randint(0, 4, (samples,), generator=generator))
            x.copy_(prototypes[task][y] + torch.randn(samples, 20, generator=generator))
            if task == 1:
                y.copy_((y + 1) % 4)
            found.append(learn.observe({"pixels": x} if as_mapping else x, y).context)
    assert (found[39], found[79], found[119]) == (0, 1, 2)


@pytest.mark.parametrize("number", [np.float32, np.float64, torch.tensor, int])
def test_the_detector_takes_numbers_of_any_kind(number):
    plain, other = gateon.ContextDetector(), gateon.ContextDetector()
    for loss in [3, 2, 1] * 5:
        assert plain.update(float(loss)) == other.update(number(loss))
    assert plain.state_dict() == other.state_dict()
    for bad in ("0.5", None, torch.ones(2), np.float64("nan")):
        with pytest.raises(ValueError, match="finite numbers only"):
            other.update(bad)
    assert plain.state_dict() == other.state_dict()


@pytest.mark.parametrize("number", [np.int64, np.int32, torch.tensor])
def test_contexts_are_numbers_of_any_kind(number):
    learn = learner(gateon.GateON())
    (x, y) = data(0)[0]
    seen = learn.observe(x, y, context=number(1))
    assert (
        seen.context == 1
        and type(seen.context) is int
        and not learn.observe(x, y, context=1).switched
    )
    torch.testing.assert_close(learn.predict(x, context=number(0)), learn.predict(x, context=0))
    for bad in (number(-1), True, 0.5, "first", None):
        with pytest.raises((IndexError, ValueError)):
            learn.observe(x, y, context=bad)


@pytest.mark.parametrize("compact", [True, False])
def test_nothing_cannot_be_recognised(compact):
    learn = learner(gateon.GateON(), compact=compact)
    (x, y) = data(0)[0]
    learn.observe(x, y, context=1)
    for call in (learn.recognise, partial(learn.predict, context="batch")):
        with pytest.raises(ValueError, match="at least one sample"):
            call(x[:0])


# Availability.


@pytest.mark.parametrize("per", ["unit", "parameter"])
@pytest.mark.parametrize("compact", [True, False])
def test_a_first_rate_of_zero_freezes_from_the_second_context_on(per, compact):
    learn = learner(
        gateon.GateON(per=per, first_rate=0.0, rate=0.05, epsilon=0.0, density=0.9), compact=compact
    )
    least = []
    for context in (0, 1):
        for x, y in data(context):
            learn.observe(x, y, context=context)
        least.append(min(A.min().item() for A in learn.method.handle.availability.values()))
    assert least[0] == 1 and least[1] < 0.9


class DecaysInPlace(torch.optim.Optimizer):
    """Adds weight decay to the gradients themselves, as many optimizers outside torch do."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "weight_decay": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if p.grad is not None:
                p.grad.add_(p, alpha=0.1)
                p.sub_(p.grad, alpha=0.1)


def test_idle_contexts_do_not_move_though_the_optimizer_writes_into_gradients():
    model = mlp()
    gates = gateon.attach(model, contexts=3, density=0.5)
    optimizer = DecaysInPlace(model.parameters())
    gateon.obstruct(optimizer, gates)
    before = copy.deepcopy(gates.gain(2))
    train(model, optimizer, data(0))
    assert all(torch.equal(gain, before[name]) for name, gain in gates.gain(2).items())


def test_a_context_moves_by_momentum_though_a_batch_has_no_gradient_for_its_gates():
    learned = []
    for compact in (True, False):
        model = mlp(dtype=double)
        model[0].bias.data.fill_(-0.5)  # so that empty inputs silence every unit
        learn = learner(
            gateon.GateON(density=0.3),
            compact=compact,
            model=model,
            optimizer=partial(torch.optim.Adam, lr=0.01, eps=1e-3),
        )
        for context in range(2):
            for n, (x, y) in enumerate(data(context, dtype=double)):
                learn.observe(x * (n % 2 == 0), y, context=context)
        learned.append(list(learn.model.parameters()))
    assert distance(*learned) < 1e-8


def test_micro_batches_of_several_contexts_move_the_gates_of_each():
    model = mlp()
    gates = gateon.attach(model, contexts=3, density=0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    gateon.obstruct(optimizer, gates)
    gates.switch(2)
    train(model, optimizer, data(0, 3))
    before = {name: gate.weight.detach().clone() for name, gate in gates.gates.items()}
    for context in (0, 1):
        gates.switch(context)
        (x, y) = data(context, 1)[0]
        F.cross_entropy(model(x), y).backward()
    optimizer.step()
    for name, gate in gates.gates.items():
        moved = (gate.weight != before[name]).any(1)
        assert moved.tolist() == [True, True, False], "momentum must not move the context before"


@pytest.mark.parametrize("first", ["switch", "load"])
def test_a_loop_of_ones_own_resumes_whether_the_state_is_loaded_before_the_switch_or_after(first):
    def make():
        model = mlp()
        gates = gateon.attach(model, contexts=2, density=0.5)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        return model, gates, optimizer, gateon.obstruct(optimizer, gates, rate=0.1)

    model, gates, optimizer, handle = make()
    train(model, optimizer, data(0))
    gates.switch(1)
    train(model, optimizer, data(1))
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), handle.state_dict()))
    train(model, optimizer, data(2))
    resumed, again, other, theirs = make()
    if first == "switch":
        again.switch(1)
    resumed.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    theirs.load_state_dict(saved[2])
    again.switch(1)
    train(resumed, other, data(2))
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), resumed.parameters(), strict=True)
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1)])
def test_contexts_inherit_after_a_resume_as_they_would_have(order):
    def make():
        return learner(gateon.GateON(rate=0.1, inherit=True, obstruct_head=True))

    whole = make()
    for context in order[:2]:
        for x, y in data(context):
            whole.observe(x, y, context=context)
    resumed = make()
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    for x, y in data(7):
        assert (
            whole.observe(x, y, context=order[2]).loss
            == resumed.observe(x, y, context=order[2]).loss
        )


def test_a_learner_that_has_gone_on_can_be_taken_back():
    learn = learner(gateon.GateON(rate=0.1, inherit=True, obstruct_head=True))
    for x, y in data(0):
        learn.observe(x, y, context=0)
    learn.observe(*data(2)[0], context=2)  # context 1 is to inherit from 0
    saved, losses = copy.deepcopy(learn.state_dict()), []
    for _ in range(2):
        learn.load_state_dict(saved)
        losses.append([learn.observe(x, y, context=1).loss for x, y in data(1)])
    assert losses[0] == losses[1]


def test_a_method_serves_one_learner():
    method = gateon.GateON()
    first = learner(method)
    (x, y) = data(0)[0]
    first.observe(x, y, context=0)
    second = learner(method)
    second.observe(x, y, context=0)
    for call in (
        partial(first.observe, x, y, context=0),
        partial(first.observe, x, y, context=1),
        first.state_dict,
    ):
        with pytest.raises(RuntimeError, match="give each learner a method of its own"):
            call()
    assert second.method.handle.gates.model is second.model


def test_sites_may_all_be_fixed_and_the_head_free():
    model = mlp(hidden=(20,))
    sites = [replace(site, fixed=not site.head) for site in find_sites(model, None)]
    gates = gateon.attach(model, contexts=2, sites=sites)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    gateon.obstruct(optimizer, gates)
    before = copy.deepcopy(model.state_dict())
    train(model, optimizer, data(0, 3))
    moved = {
        name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])
    }
    assert moved == {"1.context_gate.weight", "2.weight", "2.bias"}


# Sub-networks by hand.


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
@pytest.mark.parametrize("per", ["unit", "parameter"])
def test_a_sub_network_trained_by_hand_needs_no_switch_before(per, epsilon):
    def learned(switch):
        model = mlp(dtype=double)
        gates = gateon.attach(model, contexts=2, density=0.5)
        handle = gateon.obstruct(
            torch.optim.SGD(model.parameters(), lr=0.1),
            gates,
            per=per,
            rate=0.2,
            epsilon=epsilon,
            first_rate=0.3,
        )
        for context in (0, 1, 0):
            if switch:
                gates.switch(context)
            small = gateon.compact(model, context)
            optimizer = torch.optim.SGD(small.parameters(), lr=0.3)
            small.obstruction.follow(optimizer)
            train(small, optimizer, data(context, dtype=double))
            small.write_back()
            assert gates.context == context
        return [*model.parameters(), *handle.availability.values(), *handle.applied.values()]

    assert distance(learned(True), learned(False)) == 0


def test_the_slope_of_a_prelu_is_nobodys_own_though_one_unit_is_open():
    for per in ("unit", "parameter"):
        learned = []
        for compact in (True, False):
            learn = learner(
                gateon.GateON(per=per, density=0.05, rate=0.1),
                compact=compact,
                model=mlp(dtype=double, activation=nn.PReLU),
            )
            for x, y in data(0, dtype=double):
                learn.observe(x, y, context=0)
            learned.append([*learn.model.parameters(), *learn.method.handle.availability.values()])
        assert distance(*learned) < 1e-8


def test_a_unit_that_closes_before_its_norm_is_silent():
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8, affine=False), nn.ReLU(), nn.Linear(8, 3)
    )
    model = gateon.context_norms(layers)
    gateon.attach(model, density=1.0, before_norm=True)
    model[0].bias.data.fill_(-3.0)
    for _ in range(20):
        model(torch.randn(32, 5))
    model[0].context_gate.weight.data[0, :3] = -0.1  # statistics of its open days are stored
    x = torch.randn(6, 5)
    model.eval()
    torch.testing.assert_close(gateon.compact(model, 0).eval()(x), model(x))
    removed = copy.deepcopy(model.state_dict()["3.weight"])
    removed[:, :3] = 0
    expected = model(x)
    model[3].weight.data = removed
    torch.testing.assert_close(model(x), expected)


# Weights that are computed.


def pruned(layer):
    return prune.random_unstructured(layer, "weight", amount=0.3)


COMPUTED = {
    "weight_norm": weight_norm,
    "spectral_norm": spectral_norm,
    "parametrizations.weight_norm": parametrizations.weight_norm,
    "parametrizations.spectral_norm": parametrizations.spectral_norm,
    "parametrizations.orthogonal": parametrizations.orthogonal,
    "prune": pruned,
}


def with_computed_weights(kind, where):
    torch.manual_seed(0)
    model = mlp(hidden=(12, 10), dtype=double)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        for index in where:
            model[index] = COMPUTED[kind](model[index])
    return model


@pytest.mark.parametrize("where", [(0,), (2,), (0, 2), (4,)])
@pytest.mark.parametrize("kind", COMPUTED)
def test_layers_whose_weights_are_computed_are_gated_and_keep_their_width(kind, where):
    model = with_computed_weights(kind, where)
    gates = gateon.attach(model, contexts=2, density=0.5)
    assert list(gates.gates) == ["0", "2"]
    gates.switch(1)
    x = torch.randn(5, 6, dtype=double)
    model.eval()
    expected = model(x)
    small = gateon.compact(model, 1)
    torch.testing.assert_close(small.eval()(x), expected)
    folded = gateon.compact(model, 1, fold=True, example=x)
    torch.testing.assert_close(folded(x), expected)
    torch.testing.assert_close(model(x), expected)  # the whole is as it was
    assert all(not module._forward_pre_hooks for module in folded.modules())


@pytest.mark.parametrize("per", ["unit", "parameter"])
@pytest.mark.parametrize("kind", COMPUTED)
def test_layers_whose_weights_are_computed_learn_the_same_in_a_sub_network(kind, per):
    learned = []
    for compact in (True, False):
        # Under spectral_norm every pass moves an estimate: the same passes must have been made.
        learn = learner(
            gateon.GateON(per=per, density=0.5, rate=0.1),
            compact=compact,
            model=with_computed_weights(kind, (0,)),
        )
        for context in (0, 1):
            for x, y in data(context, dtype=double):
                learn.observe(x, y, context=context)
        assert learn.is_compact is compact, "the second hidden layer can be narrowed"
        learned.append([*learn.model.parameters(), *learn.method.handle.availability.values()])
        assert min(A.min() for A in learn.method.handle.availability.values()) < 1
    assert distance(*learned) < 1e-8


def test_availability_protects_what_a_weight_is_computed_from():
    model = with_computed_weights("parametrizations.weight_norm", (0, 2))
    gates = gateon.attach(model, density=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, rate=0.1)
    for A in handle.applied.values():
        A.zero_()
    for ledger in handle.ledgers():
        ledger.take_stock()
    before = copy.deepcopy(model.state_dict())
    train(model, optimizer, data(0, 3, dtype=double))
    moved = {
        name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])
    }
    assert moved == {"1.context_gate.weight", "3.context_gate.weight", "4.weight", "4.bias"}


# Folding.


class TiedEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.hidden, self.head = (
            nn.Embedding(11, 8),
            nn.Linear(8, 8),
            nn.Linear(8, 11, bias=False),
        )
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(F.gelu(self.hidden(self.embedding(x))))


class TiedLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.a, self.b, self.head = (
            nn.Linear(4, 8),
            nn.Linear(8, 8),
            nn.Linear(8, 8),
            nn.Linear(8, 3),
        )
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.head(F.relu(self.b(F.relu(self.a(F.relu(self.first(x)))))))


@pytest.mark.parametrize("kind", [TiedEmbedding, TiedLayers])
def test_a_folded_network_with_tied_weights_computes_the_same(kind):
    torch.manual_seed(0)
    model = kind().eval()
    x = torch.randint(0, 11, (5, 7)) if kind is TiedEmbedding else torch.randn(5, 4)
    gates = gateon.attach(model, contexts=2, density=0.6)
    gates.switch(1)
    expected = model(x)
    torch.testing.assert_close(gateon.compact(model, 1, fold=True)(x), expected)
    torch.testing.assert_close(model(x), expected)


def language_models():
    transformers = pytest.importorskip("transformers")
    small = {"vocab_size": 50, "num_hidden_layers": 2}
    t5 = {
        "vocab_size": 50,
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 32,
        "num_layers": 1,
        "num_heads": 2,
        "decoder_start_token_id": 0,
    }
    bart = {
        "vocab_size": 50,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "max_position_embeddings": 32,
    }
    tokens = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    gpt2 = {
        "vocab_size": 50,
        "n_positions": 32,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return {
        "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**gpt2)),
        "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**t5)),
        "t5-untied": lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(**t5, tie_word_embeddings=False)
        ),
        "bart": lambda: transformers.BartForConditionalGeneration(
            transformers.BartConfig(**bart, **tokens, decoder_start_token_id=2)
        ),
        "mamba": lambda: transformers.MambaForCausalLM(
            transformers.MambaConfig(**small, hidden_size=16, state_size=4)
        ),
    }


@pytest.mark.parametrize("kind", ["gpt2", "t5", "t5-untied", "bart", "mamba"])
def test_folded_language_models_compute_the_same(kind):
    torch.manual_seed(0)
    model = language_models()[kind]().eval()
    example = {"input_ids": torch.randint(3, 50, (2, 7))}
    if kind.startswith(("t5", "bart")):
        example["decoder_input_ids"] = torch.randint(3, 50, (2, 5))
    gates = gateon.attach(model, contexts=2, density=0.6, example=example)
    gates.switch(1)
    with torch.no_grad():
        expected = model(**example).logits
        folded = gateon.compact(model, 1, fold=True, example=example)
        torch.testing.assert_close(folded(**example).logits, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model(**example).logits, expected)


def test_a_layer_whose_weight_a_hook_of_the_users_computes_keeps_its_width_and_is_not_folded():
    def normalise(layer, inputs):
        layer.weight = layer.raw / layer.raw.norm()

    for place in (0, 2, 4):
        model = mlp()
        raw = nn.Parameter(model[place].weight.detach().clone())
        del model[place].weight
        model[place].register_parameter("raw", raw)
        model[place].register_forward_pre_hook(normalise)
        normalise(model[place], None)
        gates = gateon.attach(model, contexts=2, density=0.5)
        gates.switch(1)
        x = data(0)[0][0]
        torch.testing.assert_close(gateon.compact(model, 1)(x), model(x))
        try:
            folded = gateon.compact(model, 1, fold=True)
        except ValueError as refusal:
            assert "no weights to fold into" in str(refusal)
        else:
            torch.testing.assert_close(folded(x), model(x))


def test_a_sub_network_that_would_differ_is_refused():
    class Scaled(nn.Module):
        """Reads the weight of a layer beside calling it: what narrowing changes."""

        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(torch.relu(self.first(x))) * self.first.weight.square().sum()

    torch.manual_seed(0)
    model = Scaled()
    gates = gateon.attach(model, contexts=2, density=0.5)
    x = torch.randn(5, 4)
    for fold in (True, False):
        with pytest.raises(ValueError, match="does not compute what the model does"):
            gateon.compact(model, 1, fold=fold, example=x)
    assert gates.context == 0


# Batches that are refused.


@pytest.mark.parametrize("compact", [True, False])
def test_a_refused_batch_leaves_no_trace_in_statistics(compact):
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Linear(6, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 3)
    )
    learn = learner(gateon.GateON(), compact=compact, model=gateon.context_norms(layers))
    (x, y) = data(0)[0]
    learn.observe(x, y, context=0)
    before, generator = copy.deepcopy(learn.model.state_dict()), torch.get_rng_state()
    for bad_x, bad_y, error in [
        (x + 10, torch.full_like(y, 9), ValueError),
        (x[:1], y[:1], ValueError),
        (torch.full_like(x, torch.nan), y, FloatingPointError),
    ]:
        with pytest.raises(error):
            learn.observe(bad_x, bad_y, context=0)
        assert all(
            torch.equal(tensor, before[name]) for name, tensor in learn.model.state_dict().items()
        )
        assert torch.equal(torch.get_rng_state(), generator)


class RootOfZero(nn.Module):
    """Finite, but its gradient at 0 is not."""

    def forward(self, x):
        return (x - x.detach()).abs().sqrt() + x


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize(
    "method",
    [
        gateon.gating_only(),
        gateon.GateON(),
        gateon.GateON(per="parameter"),
        gateon.Finetune(),
        gateon.GateON(rate={"0": 0.0, "*": 0.1}),
    ],
    ids=lambda m: m.name,
)
def test_a_gradient_that_is_not_finite_under_a_finite_loss_changes_nothing(method, compact):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 20), RootOfZero(), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 3)
    )
    learn = learner(copy.deepcopy(method), compact=compact, model=model)
    before = copy.deepcopy(learn.model.state_dict())
    with pytest.raises(FloatingPointError, match="not finite"):
        learn.observe(*data(0)[0], context=0)
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in learn.model.state_dict().items()
    )


def test_predicting_leaves_the_modes_of_modules_alone():
    for compact in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(6, 20),
            nn.BatchNorm1d(20),
            nn.ReLU(),
            nn.Linear(20, 20),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(20, 3),
        )
        model[1].eval()
        model[5].eval()
        learn = learner(gateon.GateON(), compact=compact, model=model)
        (x, y) = data(0)[0]
        for context in (0, 1):
            statistics = model[1].running_mean.clone()
            learn.observe(x, y, context=context)
            learn.predict(x)
            learn.predict(x, context=0)
            learn.observe(x, y, context=context)
            assert torch.equal(learn.model[1].running_mean, statistics), (
                "in evaluation its statistics do not move"
            )
            assert (
                not learn.model[1].training
                and not learn.model[5].training
                and learn.model[0].training
            )


# Misuse.


def test_a_context_added_between_forward_and_backward_takes_no_part_yet():
    model = mlp()
    gates = gateon.attach(model, contexts=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    gateon.obstruct(optimizer, gates)
    train(model, optimizer, data(0, 2))
    (x, y) = data(1)[0]
    loss = F.cross_entropy(model(x), y)
    gates.add_context()
    new, old = gates.gain(2)["0"].clone(), gates.gain(0)["0"].clone()
    loss.backward()
    optimizer.step()
    assert torch.equal(gates.gain(2)["0"], new) and not torch.equal(gates.gain(0)["0"], old)


def test_functional_gradients_of_an_obstructed_model_are_plain():
    model = mlp(dtype=double)
    gates = gateon.attach(model, density=0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates)
    (x, y) = data(0, dtype=double)[0]

    def loss(parameters, x, y):
        return F.cross_entropy(torch.func.functional_call(model, parameters, (x,)), y)

    parameters = {name: p.detach() for name, p in model.named_parameters()}
    found = torch.func.grad(loss)(parameters, x, y)
    F.cross_entropy(model(x), y).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(
        parameters, x[:, None], y[:, None]
    )
    torch.testing.assert_close(each["0.weight"].mean(0), found["0.weight"])
    optimizer.step()
    assert handle.availability["0"].min() < 1


def test_a_learner_that_is_copied_says_what_to_do_instead():
    with pytest.raises(TypeError, match="load_state_dict"):
        copy.deepcopy(learner(gateon.GateON()))


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("method", [gateon.GateON, partial(gateon.GateON, per="parameter")])
def test_a_learner_with_the_state_of_another_shares_nothing_with_it(method, compact):
    def make():
        adam = partial(torch.optim.Adam, lr=0.01)
        one = learner(method(), compact=compact, optimizer=adam)
        for x, y in data(0):
            one.observe(x, y, context=0)
        return one

    alone, given = make(), make()
    other = learner(method(), compact=compact, optimizer=partial(torch.optim.Adam, lr=0.01))
    other.load_state_dict(given.state_dict())
    for x, y in data(1):
        other.observe(x, y, context=0)
    for x, y in data(2):
        assert given.observe(x, y, context=0).loss == alone.observe(x, y, context=0).loss


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("obstructed", [False, True])
def test_any_optimizer_follows_gates_that_grow(fused, obstructed):
    model = mlp()
    gates = gateon.attach(model, contexts=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=fused)
    if obstructed:
        gateon.obstruct(optimizer, gates)
    train(model, optimizer, data(0, 3))
    (x, y) = data(1)[0]
    loss = F.cross_entropy(model(x), y)
    gates.add_context()
    gates.add_context()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    gates.switch(3)
    train(model, optimizer, data(2, 3))
    for gate in gates.gates.values():
        assert optimizer.state[gate.weight]["exp_avg"].shape == gate.weight.shape == (4, 20)


@pytest.mark.parametrize("how", ["penalty", "gradient"])
def test_the_context_before_does_not_move_at_the_first_step_after_a_switch(how):
    model = mlp()
    gates = gateon.attach(model, contexts=2, density=0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    gateon.obstruct(optimizer, gates)
    train(model, optimizer, data(0, 3))
    before = copy.deepcopy(gates.gain(0))
    gates.switch(1)
    for x, y in data(1, 2):
        loss = F.cross_entropy(model(x), y)
        if how == "penalty":
            loss = loss + sum(p.square().sum() for p in model.parameters())
        loss.backward()
        if how == "gradient":
            for p in model.parameters():
                p.grad.add_(p.detach())
        optimizer.step()
        optimizer.zero_grad()
    assert all(torch.equal(gain, before[name]) for name, gain in gates.gain(0).items())


@pytest.mark.parametrize("per", ["unit", "parameter"])
@pytest.mark.parametrize("rate", [0.0, 0.01])
def test_an_infinite_gradient_of_one_weight_changes_nothing(rate, per):
    model = mlp(hidden=(20,))
    gates = gateon.attach(model, density=0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gateon.obstruct(optimizer, gates, rate=rate, per=per)
    before = copy.deepcopy(model.state_dict())
    (x, y) = data(0)[0]
    F.cross_entropy(model(x), y).backward()
    model[2].weight.grad[0, 0] = float("inf")
    with pytest.raises(FloatingPointError, match="not finite"):
        optimizer.step()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_method_given_away_refuses_every_call_that_would_use_it():
    method = gateon.GateON()
    first = learner(method)
    first.observe(*data(0)[0], context=0)
    saved = copy.deepcopy(first.state_dict())
    learner(method)
    for call in (partial(first.load_state_dict, saved), partial(first.switch, 1)):
        with pytest.raises(RuntimeError, match="give each learner a method of its own"):
            call()


def test_a_refused_batch_leaves_the_estimates_of_spectral_norm_alone():
    model = with_computed_weights("parametrizations.spectral_norm", (0,))
    learn = learner(gateon.GateON(), model=model)
    (x, y) = data(0, dtype=double)[0]
    learn.observe(x, y, context=0)
    before = copy.deepcopy(learn.model.state_dict())
    for bad in (9, -1):
        with pytest.raises(ValueError, match=r"Labels must be between 0 and 2, got"):
            learn.observe(x, torch.full_like(y, bad), context=0)
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in learn.model.state_dict().items()
    )


def test_a_rule_and_a_relevance_of_ones_own_are_the_same_in_a_sub_network():
    def halve(A, mu):
        return torch.where(mu > 1, A / 2, (A * 1.1).clamp_max(1))

    def of_units(gradient, x):
        return (gradient * x).abs().sum((0, 2))

    def of_parameters(gradient, parameter):
        return (gradient * parameter).abs()

    for per, relevance in (("unit", of_units), ("parameter", of_parameters)):
        learned = []
        for compact in (True, False):
            method = gateon.GateON(per=per, relevance=relevance, rule=halve, density=0.5)
            learn = learner(method, compact=compact, model=mlp(dtype=double))
            for context in (0, 1, 0):
                for x, y in data(context, 6, dtype=double):
                    learn.observe(x, y, context=context)
            learned.append([*learn.model.parameters(), *learn.method.handle.availability.values()])
            assert min(A.min() for A in learn.method.handle.availability.values()) < 0.5
        assert distance(*learned) < 1e-8


def test_rates_of_falling_and_rising_may_differ():
    A, mu = torch.tensor([0.5, 0.5]), torch.tensor([0.0, 2.0])
    both = gateon.availability.update(A, mu, rate=(0.1, 0.4), epsilon=0.5)
    torch.testing.assert_close(both, torch.tensor([0.5 * 1.2, 0.5 * 0.85]))
    handles = []
    for rate in (0.1, (0.1, 0.1), {"*": (0.1, 0.1)}):
        model = mlp()
        gates = gateon.attach(model, density=0.5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handles.append(gateon.obstruct(optimizer, gates, rate=rate, epsilon=0.5))
        train(model, optimizer, data(0))
    for handle in handles[1:]:
        for name, A in handle.availability.items():
            assert torch.equal(A, handles[0].availability[name])
    with pytest.raises(ValueError, match="a pair for falling and rising"):
        gateon.GateON(rate=(1, 2, 3)).prepare(mlp())


def test_a_new_kind_of_layer_is_registered_in_one_place():
    from gateon.anatomy.kinds import Kind, layer_kind

    class Scaled(nn.Module):
        """A layer with its weight the other way round and a scale per unit."""

        def __init__(self, inputs, units):
            super().__init__()
            self.inputs, self.width = inputs, units
            self.weight = nn.Parameter(torch.randn(inputs, units, dtype=double) / inputs**0.5)
            self.scale = nn.Parameter(torch.ones(units, dtype=double))

        def forward(self, x):
            return x @ self.weight * self.scale

    @layer_kind(Scaled)
    class ScaledKind(Kind):
        narrows = True
        unit_sizes = ("width",)
        input_sizes = ("inputs",)

        def unit_axis(self, layer, name):
            return 1 if name == "weight" else 0

        def input_axis(self, layer):
            return 0

    def network():
        torch.manual_seed(0)
        return nn.Sequential(
            Scaled(6, 20), nn.ReLU(), Scaled(20, 16), nn.ReLU(), nn.Linear(16, 3).double()
        )

    for per in ("unit", "parameter"):
        learned = []
        for compact in (True, False):
            learn = learner(
                gateon.GateON(per=per, density=0.5, rate=0.1), compact=compact, model=network()
            )
            for context in (0, 1):
                for x, y in data(context, dtype=double):
                    learn.observe(x, y, context=context)
            learned.append([*learn.model.parameters(), *learn.method.handle.availability.values()])
        assert distance(*learned) < 1e-8
    x = data(0, dtype=double)[0][0]
    folded = gateon.compact(learn.model, 1, fold=True, example=x)
    assert folded[0].width == len(folded[0].scale) == 10
