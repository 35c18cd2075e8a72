"""Freezing that looks after the room left, against its literal twin; and relevance by Fisher."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

import gateon
import reference
from easy_tasks import batch
from gateon.availability.room import SPARE, goal, share, usual_density
from gateon.methods.base import Outline
from gateon.networks import mlp
from rounding import assert_same

double = torch.float64


def obstructed(per, density=0.5, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    gates = gateon.attach(model, contexts=3, density=density, start=0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    asked = {"rate": "room", "relevance": "fisher", "head": True} | settings
    return model, gates, optimizer, gateon.obstruct(optimizer, gates, per=per, **asked)


def step(model, optimizer, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 6, generator=generator, dtype=double)
    y = torch.randint(0, 3, (5,), generator=generator)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


@pytest.mark.numeric
@pytest.mark.parametrize("per", ["unit", "parameter"])
def test_every_step_takes_what_is_above_the_goal_in_proportion_to_relevance(per):
    model, _, optimizer, handle = obstructed(per)
    handle.expect(steps=10, tasks=4)
    for n in range(3):
        before = {name: A.clone() for name, A in handle.availability.items()}
        step(model, optimizer, n)
        for layer in ("0", "2"):
            weight, bias = (model.get_parameter(f"{layer}.{name}") for name in ("weight", "bias"))
            if per == "unit":
                mu, names = reference.fisher_of_units([weight.grad, bias.grad[:, None]]), [layer]
            else:
                mu = torch.cat([weight.grad.flatten() ** 2, bias.grad**2])
                names = [f"{layer}.weight", f"{layer}.bias"]
            A = torch.cat([before[name].flatten() for name in names])
            numbers = len(A)
            aim = goal(numbers, numbers, share(4), (n + 1) / 10)
            now = torch.cat([handle.availability[name].flatten() for name in names])
            assert_same(now, reference.spent(A, mu, aim))


@pytest.mark.parametrize("tasks", [2, 10])
def test_after_the_last_task_expected_the_spare_room_is_left(tasks):
    model, gates, optimizer, handle = obstructed("parameter", density=1.0)
    for k in range(tasks):
        handle.expect(steps=20, tasks=tasks)
        gates.switch(k % 3)
        for n in range(20):
            step(model, optimizer, 100 * k + n)
        left = [handle.availability[f"0.{name}"].flatten() for name in ("weight", "bias")]
        assert torch.cat(left).mean().item() == pytest.approx(SPARE ** ((k + 1) / tasks), abs=0.02)


def test_unannounced_tasks_are_as_long_as_the_one_before():
    model, gates, optimizer, handle = obstructed("parameter")
    for n in range(4):
        step(model, optimizer, n)
    gates.switch(1)
    assert handle.pace.after_step(0.0) == pytest.approx(1 / 4)
    assert handle.pace.share == share(None)


def test_relevance_counts_only_after_the_asked_share_of_a_task():
    model, _, optimizer, handle = obstructed("parameter", rate=0.1, gather_after=0.5)
    handle.expect(steps=10)
    for n in range(5):
        step(model, optimizer, n)
        assert all(bool((A == 1).all()) for A in handle.availability.values())
    step(model, optimizer, 5)
    assert any(bool((A < 1).any()) for A in handle.availability.values())


def learner(per, *, compact=True, dtype=double):
    torch.manual_seed(0)
    method = replace(gateon.preset("room", per), tasks=4, density=0.5)
    return gateon.Learner(
        mlp(8, (20, 20), 3).to(dtype),
        optimizer=partial(torch.optim.SGD, lr=0.1),
        method=method,
        compact=compact,
    )


def taught(one, tasks, steps=12):
    for k in tasks:
        one.expect(Outline(steps, steps))
        for s in range(steps):
            x, y = batch(k, seed=s)
            one.observe(x.to(one.model[1].weight.dtype), y, context=k)
    return one


@pytest.mark.numeric
@pytest.mark.parametrize("per", ["unit", "parameter"])
def test_a_sub_network_spends_the_room_of_the_whole_layer(per):
    small, whole = (taught(learner(per, compact=compact), range(3)) for compact in (True, False))
    assert small.is_compact and not whole.is_compact
    for a, b in ((one.method.handle.availability for one in pair) for pair in [(small, whole)]):
        assert_same(a, b)
    assert_same(dict(small.model.named_parameters()), dict(whole.model.named_parameters()))


@pytest.mark.parametrize("per", ["unit", "parameter"])
def test_a_task_resumed_in_the_middle_spends_the_same(per):
    one = taught(learner(per), [0])
    one.expect(Outline(12, 12))
    for s in range(5):
        one.observe(*(t.double() if t.is_floating_point() else t for t in batch(1, seed=s)), 1)
    other = learner(per)
    other.load_state_dict(one.state_dict())
    for each in (one, other):
        for s in range(5, 12):
            x, y = batch(1, seed=s)
            each.observe(x.double(), y, context=1)
        each.switch(2)
    for name, A in one.method.handle.applied.items():
        assert torch.equal(A, other.method.handle.applied[name])


@pytest.mark.numeric
def test_fisher_of_units_equals_its_twin():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).double()
    gates = gateon.attach(model, density=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    rate = 1e-3
    handle = gateon.obstruct(optimizer, gates, rate=rate, relevance="fisher", head=True)
    model(torch.randn(5, 2, 4, 4, dtype=double)).square().sum().backward()
    optimizer.step()
    for name in handle.availability:
        layer = model.get_submodule(name)
        mu = reference.fisher_of_units([layer.weight.grad, layer.bias.grad[:, None]])
        expected = reference.availability(torch.ones_like(mu), reference.normalise(mu), rate, 0.0)
        assert_same(handle.availability[name], expected)


def test_sub_networks_get_sparser_the_more_tasks_are_expected():
    ten, many = (replace(gateon.preset("room"), tasks=tasks) for tasks in (10, 1000))
    open_units = []
    for method in (ten, many):
        method.prepare(mlp(8, (1000,), 3))
        open_units.append((method.gates.gain(0)["1"] > 0).sum().item())
    assert open_units == [round(1000 * usual_density(tasks)) for tasks in (10, 1000)]


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"epsilon": 0.5}, "set epsilon to 0"),
        ({"rule": lambda A, mu: A}, "leave rule out"),
        ({"apply": "step"}, 'apply="switch"'),
        ({"first_rate": 0.1}, "no first_rate"),
        ({"rate": "rooms"}, 'a number or "room"'),
        ({"rate": 0.1, "gather_after": 1.0}, "below 1"),
    ],
)
def test_what_does_not_go_with_it_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        obstructed("unit", **settings)
