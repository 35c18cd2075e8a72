"""Rows of contexts in memory or in a file: the same numbers, with one row at work."""

from __future__ import annotations

import copy
import errno
import os
from functools import partial

import pytest
import torch
from torch import nn

import gateon
from gate_models import mlp
from gateon.anatomy.rows import Rows
from gateon.storage import checkpoint

ADAM = partial(torch.optim.Adam, lr=1e-2)
CONTEXTS = (0, 1, 2, 0, 3, 1)


@pytest.fixture(params=["cpu", "file"])
def where(request, tmp_path):
    return "cpu" if request.param == "cpu" else tmp_path


def learner(where, *, compact, **settings):
    model = gateon.context_norms(mlp(norm=nn.BatchNorm1d))
    method = gateon.GateON(inherit=True, obstruct_head=True, **settings)
    made = gateon.Learner(model, optimizer=ADAM, method=method, compact=compact)
    gateon.gates_of(made.model).keep_rows(where)
    return made


def learn(learner, contexts=CONTEXTS, steps=3):
    generator = torch.Generator().manual_seed(len(contexts))
    for k in contexts:
        for _ in range(steps):
            x = torch.randn(8, 5, generator=generator)
            learner.observe(x, torch.randint(0, 3, (8,), generator=generator), context=k)
    return learner


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def held(learner):
    """All tensors that are on the device: parameters, buffers, and what the optimizer remembers."""
    model, optimizer = learner.model, learner.optimizer
    remembered = [t for entry in optimizer.state.values() for t in entry.values()]
    return [*model.parameters(), *model.buffers(), *remembered]


@pytest.mark.parametrize("per", ["unit", "parameter"])
@pytest.mark.parametrize("compact", [True, False])
def test_what_is_learned_is_the_same_to_the_last_bit(where, compact, per):
    usual, kept = (learn(learner(w, compact=compact, per=per)) for w in ("device", where))
    assert_equal(usual.model.state_dict(), kept.model.state_dict())
    assert_equal(usual.method.state_dict(), kept.method.state_dict())
    x = torch.randn(4, 5)
    for k in range(4):
        assert torch.equal(usual.predict(x, context=k), kept.predict(x, context=k))
    assert torch.equal(usual.predict(x, "sample"), kept.predict(x, "sample"))
    assert_equal(usual.model.state_dict(), kept.model.state_dict())


@pytest.mark.parametrize("compact", [True, False])
def test_only_the_row_at_work_is_on_the_device_and_in_the_optimizer(where, compact):
    one, many = (learn(learner(where, compact=compact), range(n)) for n in (1, 40))
    assert gateon.gates_of(many.model).contexts == 40
    assert [t.shape for t in held(one)] == [t.shape for t in held(many)]
    assert {
        len(rows) for m in many.model.modules() for rows in getattr(m, "kept", {}).values()
    } == {40}
    usual = learn(learner("device", compact=False), range(40))
    assert sum(t.numel() for t in held(usual)) > 3 * sum(t.numel() for t in held(many))


@pytest.mark.parametrize("compact", [True, False])
def test_a_run_goes_on_where_it_was_saved(where, compact, tmp_path):
    through = learn(learn(learner(where, compact=compact)), (1, 2, 4))
    before = learn(learner(where, compact=compact))
    checkpoint.save(before.state_dict(), tmp_path / "state")
    again = learner(where, compact=compact)
    again.load_state_dict(checkpoint.load(tmp_path / "state"))
    assert_equal(learn(again, (1, 2, 4)).model.state_dict(), through.model.state_dict())


@pytest.mark.parametrize("first", ["device", "cpu"])
def test_a_state_does_not_say_where_its_rows_were(first, tmp_path):
    second = {"device": tmp_path, "cpu": "device"}[first]
    state = learn(learner(first, compact=True)).state_dict()
    again = learner(second, compact=True)
    again.load_state_dict(state)
    expected = learn(learn(learner(first, compact=True)), (2, 5))
    assert_equal(learn(again, (2, 5)).model.state_dict(), expected.model.state_dict())


def test_a_state_that_does_not_fit_changes_no_row(where):
    state = learn(learner(where, compact=False), range(6)).state_dict()
    state["model"]["0.weight"] = state["model"]["0.weight"][:2]
    mine = learn(learner(where, compact=False), (0, 1))
    before = copy.deepcopy(mine.model.state_dict())
    with pytest.raises(ValueError, match="model does not fit"):
        mine.load_state_dict(state)
    assert_equal(mine.model.state_dict(), before)
    few = learn(learner("device", compact=False), (0,)).state_dict()["model"]
    with pytest.raises(RuntimeError, match="it has 1 rows, and this model has 2 contexts"):
        mine.model.load_state_dict(few)
    state = mine.model.state_dict()
    rows = {n: t for n, t in state.items() if "running" in n or "context_gate" in n}
    assert len(rows) == 4
    assert_equal(rows, {name: before[name] for name in rows})


def test_rows_come_and_go_in_the_middle_of_a_sub_networks_training(where):
    usual, moving = (learn(learner("device", compact=True)) for _ in range(2))
    gates = gateon.gates_of(moving.model)
    for place in (where, "device", "cpu", where):
        gates.keep_rows(place)
        for one in (usual, moving):
            learn(one, (1, 3))
        assert_equal(moving.model.state_dict(), usual.model.state_dict())


def plain(where, contexts=3):
    """A model with gates that a loop of one's own trains."""
    model = mlp()
    gates = gateon.attach(model, contexts=contexts, density=0.5)
    gates.keep_rows(where)
    return model, gates


def test_sub_networks_by_hand_are_those_of_the_ordinary_layout(where):
    outputs = []
    for place in ("device", where):
        model, gates = plain(place)
        small = gateon.compact(model, context=2)
        with torch.no_grad():
            for parameter in small.parameters():
                parameter.mul_(1.5)
        assert gates.context == 0
        small.write_back()
        assert gates.context == 2
        outputs.append(
            model.state_dict() | {"folded": gateon.compact(model, 1, fold=True)[0].weight}
        )
    assert_equal(*outputs)


def test_an_optimizer_that_remembers_another_context_is_refused(where):
    model, gates = plain(where)
    optimizer = ADAM(model.parameters())
    model(torch.ones(2, 5)).sum().backward()
    optimizer.step()
    gates.switch(1)
    optimizer.zero_grad()
    model(torch.ones(2, 5)).sum().backward()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="build a new one after a switch"):
        optimizer.step()
    assert_equal(model.state_dict(), before)
    ADAM(model.parameters()).step()
    assert not torch.equal(
        model.state_dict()["1.context_gate.weight"][1], before["1.context_gate.weight"][1]
    )


def test_a_gradient_of_another_context_is_refused(where):
    model, gates = plain(where)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 5)).sum().backward()
    with pytest.raises(ValueError, match="a gradient that no step has used"):
        gates.switch(1)
    assert gates.context == 0
    optimizer.zero_grad()
    late = model(torch.ones(2, 5)).sum()
    gates.switch(1)
    late.backward()
    with pytest.raises(ValueError, match=r"the gradient is of \[0\] too"):
        optimizer.step()
    optimizer.zero_grad()
    before = model.state_dict()["1.context_gate.weight"].clone()
    model(torch.ones(2, 5)).sum().backward()
    optimizer.step()  # used, and not set to zero: the next switch drops it
    gates.switch(2)
    model(torch.ones(2, 5)).sum().backward()
    optimizer.step()
    moved = (model.state_dict()["1.context_gate.weight"] != before).any(1)
    assert moved.tolist() == [False, True, True]


def test_evaluating_in_another_context_leaves_a_gradient_alone(where):
    model, gates = plain(where)
    model(torch.ones(2, 5)).sum().backward()
    gradient = gates.gates["0"].weight.grad.clone()
    with torch.no_grad():
        gates.show(2)
        model(torch.ones(2, 5))
        gates.show(0)
    assert torch.equal(gates.gates["0"].weight.grad, gradient)
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def test_samples_in_contexts_of_their_own_are_refused(where):
    _, gates = plain(where)
    with pytest.raises(ValueError, match="one context at a time"):
        gates.show([0, 1])
    gates.keep_rows("device")
    gates.show([0, 1])
    with pytest.raises(ValueError, match="switch to one"):
        gates.keep_rows(where)


def test_a_place_that_is_none_changes_nothing(tmp_path, monkeypatch):
    model, gates = plain("device")
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="create it first"):
        gates.keep_rows(tmp_path / "nowhere")

    def full(descriptor, start, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="No space left on device"):
        gates.keep_rows(tmp_path)
    assert_equal(model.state_dict(), before)
    assert gates.gates["0"].weight.shape == (3, 16)


def test_a_copy_and_a_detached_model_have_rows_of_their_own(where):
    model = gateon.context_norms(mlp(norm=nn.BatchNorm1d))
    gates = gateon.attach(model, contexts=3)
    gates.keep_rows(where)
    before = copy.deepcopy(model.state_dict())
    twin = copy.deepcopy(model)
    with torch.no_grad():
        gates.switch(1)
        gates.gates["0"].weight.add_(1)
        model(torch.randn(6, 5))
    assert_equal(twin.state_dict(), before)
    gateon.gates_of(twin).switch(2)
    assert_equal(twin.state_dict(), before)
    statistics = model.state_dict()["1.running_mean"].clone()
    assert torch.equal(gates.detach()[1].running_mean, statistics)


def test_numbers_of_another_kind(where):
    model, gates = plain(where)
    model.to(torch.bfloat16)
    gates.switch(1)
    assert {t.dtype for t in model.state_dict().values()} == {torch.bfloat16}
    assert gates.add_context() == 3
    usual, _ = plain("device", contexts=4)
    assert_equal(model.state_dict(), usual.to(torch.bfloat16).state_dict())


def test_a_table_grows_as_contexts_come(where):
    rows, at_work = Rows(torch.zeros(1, 3), where), torch.zeros(1, 3)
    for k in range(1, 100):
        rows.add(torch.full((3,), float(k)))
    assert torch.equal(rows.table(at_work), torch.arange(100.0)[:, None].expand(-1, 3))
