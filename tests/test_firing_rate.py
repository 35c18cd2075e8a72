"""Relevance from firing rates: its literal twin, batches in parts, states, and where it is refused."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn

import gateon
import reference
from gateon import cli
from gateon.availability import FiringRate, recovery_time
from gateon.models import mlp
from rounding import SMOOTH_ADAM, assert_same

double = torch.float64
RATE, EPSILON = 0.1, 0.5


def dense():
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))


def convolutional():
    layers = nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 4, 6), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(6, 3))


def started(make=dense, relevance=None, **options):
    torch.manual_seed(0)
    model = make().double()
    gates = gateon.attach(model, contexts=2, density=0.75)
    optimizer = SMOOTH_ADAM(model.parameters())
    relevance = FiringRate(3.0) if relevance is None else relevance
    named = {"rate": RATE, "epsilon": EPSILON, "apply": "step"} | options
    return model, gates, optimizer, gateon.obstruct(optimizer, gates, relevance=relevance, **named)


def batches(count, shape=(5,), sizes=(7,)):
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(sizes[n % len(sizes)], *shape, generator=generator, dtype=double)
        for n in range(count)
    ]


def learn(model, optimizer, xs, parts=1):
    for x in xs:
        for part in x.chunk(parts):
            (model(part).square().sum() / len(x)).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.numeric
@pytest.mark.parametrize("make, shape", [(dense, (5,)), (convolutional, (1, 4, 4))])
def test_availability_moves_by_the_literal_firing_rates(make, shape):
    model, gates, optimizer, handle = started(make)
    seen = {name: [] for name in gates.gates}
    for name, gate in gates.gates.items():
        gate.register_forward_hook(lambda m, a, out, name=name: seen[name].append(out.detach()))
    learn(model, optimizer, batches(6, shape, sizes=(7, 3)))
    for name, activities in seen.items():
        A = torch.ones(gates.sites[name].units, dtype=double)
        for mu in reference.firing_rate_relevance(
            [x.flatten(2) if x.dim() > 2 else x[:, :, None] for x in activities], 3.0
        ):
            A = reference.availability(A, reference.normalise(mu), RATE, EPSILON)
        assert_same(handle.availability[name], A)
        assert A.unique().numel() > 2


@pytest.mark.numeric
def test_a_batch_in_uneven_parts_is_one_batch():
    found = []
    for parts in (1, 3):
        model, _, optimizer, handle = started()
        learn(model, optimizer, batches(4, sizes=(7, 4)), parts)
        found.append(handle.availability)
    for name in found[0]:
        assert_same(found[0][name], found[1][name])


@pytest.mark.numeric
def test_without_a_filter_it_is_the_square_of_the_mean_activity():
    model, gates, optimizer, handle = started(relevance=FiringRate(1), epsilon=0.0)
    seen = []
    gates.gates["0"].register_forward_hook(lambda m, a, out: seen.append(out.detach()))
    learn(model, optimizer, batches(1))
    mu = seen[0].abs().mean(0).square()
    assert_same(handle.availability["0"], (1 - RATE * mu / mu.mean()).clamp(0, 1))


def test_rates_outlast_a_switch_and_fade_with_the_time_constant():
    model, gates, optimizer, handle = started()
    learn(model, optimizer, batches(5))
    before = handle.state_dict()["0:rates"]
    gates.switch(1)
    assert torch.equal(handle.state_dict()["0:rates"], before)
    silent = (gates.gain(1)["0"] == 0) & (before > 0)
    learn(model, optimizer, batches(2))
    after = handle.state_dict()["0:rates"]
    assert silent.any() and torch.allclose(after[silent], before[silent] * (1 - 1 / 3) ** 2)


def test_a_state_goes_on_to_the_bit_and_one_without_rates_is_refused():
    model, _, optimizer, handle = started()
    xs = batches(8)
    learn(model, optimizer, xs[:4])
    states = copy.deepcopy([one.state_dict() for one in (model, optimizer, handle)])
    other, _, optimizer_2, handle_2 = started()
    for one, state in zip((other, optimizer_2, handle_2), states, strict=True):
        one.load_state_dict(state)
    learn(model, optimizer, xs[4:])
    learn(other, optimizer_2, xs[4:])
    assert all(torch.equal(A, handle_2.availability[n]) for n, A in handle.availability.items())
    plain = started(relevance="activity")[-1].state_dict()
    with pytest.raises(ValueError, match=r"'.*:rates' is missing"):
        handle_2.load_state_dict(plain)


def test_a_step_that_is_not_finite_leaves_rates_and_availability():
    model, _, optimizer, handle = started()
    learn(model, optimizer, batches(2))
    before = {name: value.clone() for name, value in handle.state_dict().items()}
    with pytest.raises(FloatingPointError):
        learn(model, optimizer, [torch.full((2, 5), float("nan"), dtype=double)])
    assert all(torch.equal(value, before[name]) for name, value in handle.state_dict().items())


def test_a_learner_stays_at_full_width_and_resumes():
    def learner():
        torch.manual_seed(0)
        model = mlp(6, (12, 10), 3).double()
        method = gateon.GateON(relevance="firing-rate", density=0.5)
        return gateon.Learner(model, method=method, optimizer=partial(SMOOTH_ADAM, lr=0.01))

    def teach(one, steps):
        for step in steps:
            x = torch.randn(9, 6, generator=torch.Generator().manual_seed(step), dtype=double)
            one.observe(x, torch.arange(9) % 3, context=step // 5)

    whole, first, second = learner(), learner(), learner()
    teach(whole, range(10))
    teach(first, range(7))
    second.load_state_dict(first.state_dict())
    teach(second, range(7, 10))
    mine, theirs = (one.method.handle.state_dict() for one in (whole, second))
    assert mine.keys() == theirs.keys() and any(name.endswith(":rates") for name in mine)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match=r"at least 1 and finite, got 0\.5"):
        FiringRate(0.5)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        FiringRate(float("nan"))
    with pytest.raises(ValueError, match='parameters have none: use per="unit"'):
        started(per="parameter")
    model, *_ = started(relevance="firing-rate")
    with pytest.raises(ValueError, match="train the whole model, or fold"):
        gateon.compact(model, 1)
    assert gateon.compact(model, 1, fold=True)(torch.ones(1, 5, dtype=double)).shape == (1, 3)


@pytest.mark.usefixtures("few_digits")
def test_a_run_takes_it_by_name(tmp_path, capsys):
    small = ["--tasks=2", "--hidden", "8", "--steps=3", "--batch=20", "--data=mnist-5k", "--quiet"]
    words = ["run", "permuted-mnist", *small, "--method.relevance", "firing-rate"]
    assert cli.main([*words, "--out", str(tmp_path / "run")]) == 0
    assert "firing-rate" in (tmp_path / "run" / "record.json").read_text()
    assert cli.main([*words, "--method", "p-gateon", "--out", str(tmp_path / "other")]) == 2
    assert 'use per="unit"' in capsys.readouterr().err


@pytest.mark.numeric
@pytest.mark.parametrize("fall, rise", [(0.01, 0.01), (0.02, 0.004)])
def test_recovery_takes_as_long_as_with_both_rates_step_by_step(fall, rise):
    counted = reference.steps_until_recovered(60, 3.0, 0.2, fall, 1.0, rise=rise)
    found = recovery_time(60, 3.0, 0.2, (fall, rise), 1.0)
    assert found <= counted < found + 1
