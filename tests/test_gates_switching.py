"""Gates: switching, showing and adding contexts."""

import numpy as np
import pytest
import torch
from torch import nn

import gateon
from gate_models import every_model, make, mlp, same


@pytest.mark.parametrize(
    "context", [1, torch.tensor(1), np.int64(1), np.int32(1), torch.tensor(1, dtype=torch.int32)]
)
@pytest.mark.parametrize("call", ["switch", "show"])
def test_an_index_may_be_any_whole_number(context, call):
    gates = gateon.attach(mlp(), contexts=2)
    getattr(gates, call)(context)
    assert gates.context == 1
    assert isinstance(gates.context, int)
    assert same(gates.gain(), gates.gain(1))


@pytest.mark.parametrize("contexts", [[0, 1], (0, 1), torch.tensor([0, 1]), np.array([0, 1])])
def test_indices_may_be_any_sequence(contexts):
    model = mlp()
    gates = gateon.attach(model, contexts=2)
    gates.switch(contexts)
    assert gates.context.tolist() == [0, 1]
    assert model(torch.randn(2, 5)).shape == (2, 3)


def test_the_callers_tensor_may_be_used_again():
    model, contexts = mlp(), torch.tensor([0, 1])
    gates = gateon.attach(model.eval(), contexts=2, density=0.5)
    gates.switch(contexts)
    x = torch.randn(2, 5)
    before = model(x)
    contexts.fill_(1)
    assert torch.equal(model(x), before)
    gates.switch(contexts)
    assert gates.context.tolist() == [1, 1]


def test_listeners_hear_of_switches_only():
    heard = []

    class Ear:
        def switched(self):
            heard.append("switched")

        def context_added(self):
            heard.append("added")

        def remove(self):
            heard.append("removed")
            gates.listeners.clear()

    gates = gateon.attach(mlp(), contexts=2)
    gates.listeners.append(Ear())
    gates.switch(0)
    gates.show(1)
    gates.show(0)
    assert heard == []
    gates.switch(1)
    gates.switch(1)
    gates.switch([0, 1])
    gates.switch([0, 1])
    gates.switch([0, 1, 1])
    assert heard == ["switched"] * 3
    gates.add_context()
    gates.detach()
    assert heard[3:] == ["added", "removed"]


@pytest.mark.parametrize("call", ["switch", "show", "gain"])
@pytest.mark.parametrize(
    ("context", "error", "message"),
    [
        (-1, IndexError, "Context -1 does not exist: there are 2"),
        (2, IndexError, "Context 2 does not exist: there are 2; add_context"),
        ([0, 7], IndexError, "Context 7 does not exist"),
        (torch.tensor([0, -3]), IndexError, "Context -3 does not exist"),
        (1.0, ValueError, r"got 1\.0"),
        (True, ValueError, "got True"),
        (torch.tensor([True, False]), ValueError, "got"),
        (torch.zeros(2, 2, dtype=torch.long), ValueError, r"got \[\[0, 0\], \[0, 0\]\]"),
        ([], ValueError, r"got \[\]"),
        ("1", ValueError, "got '1'"),
        (object, ValueError, "A context must be an index, or one index for each sample"),
    ],
)
def test_a_bad_context_is_refused_and_the_old_one_stays(call, context, error, message):
    model = mlp().eval()
    gates = gateon.attach(model, contexts=2, density=0.5)
    gates.switch(1)
    x = torch.randn(2, 5)
    before = model(x)
    with pytest.raises(error, match=message):
        getattr(gates, call)(context)
    assert gates.context == 1
    assert torch.equal(model(x), before)


@every_model
def test_a_wrong_number_of_contexts_names_both_numbers(name):
    model, x = make(name)
    model = gateon.context_norms(model)
    gates = gateon.attach(model, contexts=2, example=x)
    gates.switch([0, 1, 0, 1])
    with pytest.raises(
        ValueError, match=r"4 contexts were given for a batch of 6.*switch to one context"
    ):
        model(x)
    gates.switch(0)
    model(x)


def test_looking_at_another_context_is_no_switch_and_hides_none():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    gates = gateon.attach(model, contexts=3, density=0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, rate=0.1, apply="switch")
    model(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()
    gates.show(1)
    gates.switch(0)
    assert all((A == 1).all() for A in handle.applied.values()), (
        "back in the context being learned: no switch"
    )
    gates.show(1)
    gates.switch(1)
    assert any((A < 1).any() for A in handle.applied.values()), (
        "learning the context that was shown: a switch"
    )


def test_adding_a_context_while_an_old_loss_is_alive_leaves_other_rows_alone():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    gates = gateon.attach(model, contexts=1, density=1.0)
    gate = next(iter(gates.gates.values()))
    alive = model(torch.randn(5, 3)).sum()
    alive.backward(retain_graph=True)
    gate.weight.grad = None
    gates.add_context()
    gates.switch(1)
    model(torch.randn(5, 3)).sum().backward()
    assert alive.requires_grad and not gate.weight.grad[0].any() and gate.weight.grad[1].any()
