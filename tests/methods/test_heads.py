"""Heads of their own for every task."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from method_tools import ADAM, reloaded
from torch import nn

import gateon
import rounding
from easy_tasks import assert_same, batch, train
from gateon.networks import mlp
from gateon.networks.heads import TaskHeads, with_task_heads

pytestmark = pytest.mark.numeric

MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01)


def network(tasks=1):
    torch.manual_seed(0)
    return with_task_heads(mlp(8, (24,), 3, norm="none"), tasks)


def test_each_context_has_its_own_head_and_a_new_one_is_trained():
    learner = gateon.Learner(network(), optimizer=ADAM)
    train(learner, 0, 5)
    train(learner, 2, 5)
    heads = learner.model[-1]
    assert heads.contexts == 3
    x = batch(0)[0]
    hidden = learner.model[:-1](x)
    for k in (0, 1, 2):
        weight, bias = heads.head(k)
        assert torch.allclose(learner.predict(x, context=k), hidden @ weight.T + bias, atol=1e-6)
    with pytest.raises(IndexError, match="Context 3"):
        learner.predict(x, context=3)


@pytest.mark.parametrize("optimizer", [ADAM, MOMENTUM])
@pytest.mark.parametrize("keep", [False, True])
def test_heads_of_other_tasks_do_not_move_under_any_optimizer(optimizer, keep):
    learner = gateon.Learner(network(tasks=2), optimizer=optimizer, keep_optimizer=keep)
    train(learner, 0, 5)
    before = [p.clone() for p in learner.model[-1].head(0)]
    train(learner, 1, 5)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.model[-1].head(0), strict=True))


def test_a_state_with_more_heads_is_taken_over(tmp_path):
    whole = gateon.Learner(network(), optimizer=ADAM)
    train(whole, 0, 3)
    train(whole, 1, 3)
    state = reloaded(whole.state_dict(), tmp_path / "state.safetensors")
    losses = train(whole, 1, 5, start=3) + train(whole, 2, 2)
    other = gateon.Learner(network(), optimizer=ADAM)
    other.load_state_dict(state)
    assert train(other, 1, 5, start=3) + train(other, 2, 2) == losses
    assert_same(whole.state_dict(), other.state_dict())


@pytest.mark.parametrize("per", ["unit", "parameter"])
def test_gates_find_the_hidden_layers_below_heads_and_a_sub_network_has_narrow_ones(per):
    torch.manual_seed(0)
    model = with_task_heads(mlp(8, (24, 24), 3, norm="none"), tasks=3).double()
    method = gateon.GateON(density=0.5, per=per, obstruct_head=True, rate=0.1)
    part, whole = (
        gateon.Learner(
            copy.deepcopy(model),
            optimizer=rounding.SMOOTH_ADAM,
            method=copy.deepcopy(method),
            compact=compact,
        )
        for compact in (True, False)
    )
    assert list(whole.method.gates.gates) == ["1", "3"]
    for context in (0, 1, 0):
        for s in range(5):
            x, y = batch(context, seed=s)
            for learner in (part, whole):
                learner.observe(x.double(), y, context=context)
        assert part.is_compact and not whole.is_compact
        small = part._work.network[-1]
        assert small.in_features == 12 and {
            w.shape for name, w in small.named_parameters() if "weight" in name
        } == {(3, 12)}
    x = torch.randn(5, 8).double()
    for context in (0, 1):
        rounding.assert_same(part.predict(x, context=context), whole.predict(x, context=context))
    rounding.assert_same(part.method.handle.state_dict(), whole.method.handle.state_dict())


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("per", ["unit", "parameter"])
@pytest.mark.parametrize("bias_apart", [True, False])
def test_heads_that_are_added_later_have_availabilities_too(per, compact, bias_apart):
    method = gateon.GateON(
        density=0.5, per=per, obstruct_head=True, rate=0.1, epsilon=0.0, bias_apart=bias_apart
    )

    def learner(tasks):
        torch.manual_seed(0)
        model = with_task_heads(mlp(8, (24, 24), 3, norm="none"), tasks)
        return gateon.Learner(model, optimizer=ADAM, method=copy.deepcopy(method), compact=compact)

    grown = learner(1)
    for context in (0, 1, 0):
        train(grown, context, 5)
    found = grown.method.handle.availability
    heads = [name for name in learner(2).method.handle.availability if name.startswith("5")]
    assert heads and all(found[name].min() < 1 for name in heads)
    again = learner(1)
    again.load_state_dict(grown.state_dict())
    assert train(again, 1, 5) == train(grown, 1, 5)
    assert all(
        torch.equal(A, grown.method.handle.availability[name])
        for name, A in again.method.handle.availability.items()
    )


def test_a_sub_network_with_heads_can_be_folded():
    torch.manual_seed(0)
    model = with_task_heads(mlp(8, (24,), 3), tasks=2)
    gateon.attach(model, contexts=2, density=0.5)
    model[-1].context = 1
    model.context_gates.switch(1)
    x = torch.randn(5, 8)
    torch.testing.assert_close(gateon.compact(model.eval(), 1, fold=True)(x), model(x))


def test_bad_heads_are_refused():
    with pytest.raises(ValueError, match="at least one input, class and task"):
        TaskHeads(4, 2, tasks=0)
    with pytest.raises(ValueError, match="got ReLU"):
        with_task_heads(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    with pytest.raises(ValueError, match="got NoneType"):
        with_task_heads(nn.Sequential())
