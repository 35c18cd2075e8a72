"""Relevance against its literal twin, against autograd, and against removal itself."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gateon
import reference
from gateon.availability import relevance
from rounding import assert_same

pytestmark = pytest.mark.numeric

double = torch.float64


def gated_mlp(seed=0, sizes=(6, 8, 7, 3), contexts=2, start=0.8):
    torch.manual_seed(seed)
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.Tanh())][:-1]
    model = nn.Sequential(*layers).double()
    return model, gateon.attach(model, contexts, density=0.6, start=start)


def observed(model, gates, loss_of, measure="gradient"):
    """Relevances as the package gathers them in one backward pass, normalised."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    handle = gateon.obstruct(optimizer, gates, rate=1e-3, relevance=measure, apply="step")
    loss_of(model).backward()
    optimizer.step()
    optimizer.zero_grad()
    mu = {name: (1 - A) / 1e-3 for name, A in handle.availability.items()}
    handle.remove()
    return mu


@pytest.mark.parametrize(
    "shape, unit_dim", [((4, 5), -1), ((4, 5, 3), 1), ((4, 3, 5), -1), ((4, 5, 2, 3), -3)]
)
def test_unit_relevance_equals_the_literal_sums_over_positions_and_samples(shape, unit_dim):
    gradient, x = torch.randn(shape, dtype=double), torch.randn(shape, dtype=double)
    fast = relevance.unit_gradient(relevance.contributions(gradient, x, unit_dim))
    as_3d = [t.movedim(unit_dim, 1).reshape(4, 5, -1) for t in (gradient, x)]
    torch.testing.assert_close(fast, reference.unit_relevance(*as_3d))
    torch.testing.assert_close(
        relevance.activity(x, unit_dim), reference.activity_relevance(as_3d[1])
    )


def test_samples_may_be_in_another_dimension():
    gradient, x = torch.randn(4, 5, dtype=double), torch.randn(4, 5, dtype=double)
    moved = relevance.contributions(gradient.T, x.T, unit_dim=0, batch_dim=1)
    torch.testing.assert_close(moved, relevance.contributions(gradient, x))


def test_parameter_relevance_and_normalisation_equal_their_twins():
    gradient, theta = torch.randn(4, 3, dtype=double), torch.randn(4, 3, dtype=double)
    mu = relevance.parameter_gradient(gradient, theta)
    torch.testing.assert_close(mu, reference.parameter_relevance(gradient, theta))
    torch.testing.assert_close(relevance.normalise(mu), reference.normalise(mu))
    part = relevance.normalise(mu[:2], total=mu.sum(), count=mu.numel())
    torch.testing.assert_close(part, relevance.normalise(mu)[:2])


def test_where_the_loss_is_linear_in_a_unit_relevance_is_removal_itself():
    values, slopes = torch.randn(6, dtype=double), torch.randn(6, dtype=double)
    removed = reference.removal(lambda v: v @ slopes, values)
    torch.testing.assert_close(
        relevance.unit_gradient(relevance.contributions(slopes[None], values[None])), removed
    )
    torch.testing.assert_close(relevance.parameter_gradient(slopes, values), removed)


def test_small_contributions_are_removal_to_first_order():
    torch.manual_seed(1)
    readout, y = torch.randn(3, 8, dtype=double), torch.tensor([1])
    x = 1e-4 * torch.randn(8, dtype=double)

    def loss(v):
        return nn.functional.cross_entropy((readout @ v)[None], y)

    leaf = x.clone().requires_grad_()
    loss(leaf).backward()
    fast = relevance.unit_gradient(relevance.contributions(leaf.grad[None], x[None]))
    torch.testing.assert_close(fast, reference.removal(loss, x), rtol=0.01, atol=0)


def test_what_the_gates_gather_is_the_literal_relevance_of_each_sample():
    model, gates = gated_mlp()
    x, y = torch.randn(9, 6, dtype=double), torch.randint(0, 3, (9,))
    activity = {}
    for name, gate in gates.gates.items():
        gate.register_forward_hook(
            lambda m, a, out, name=name: (out.retain_grad(), activity.__setitem__(name, out))[0]
        )
    mu = observed(model, gates, lambda m: nn.functional.cross_entropy(m(x), y))
    for name, out in activity.items():
        literal = reference.normalise(
            reference.unit_relevance(out.grad[:, :, None], out.detach()[:, :, None])
        )
        assert_same(mu[name], literal)
        assert literal.count_nonzero() > 2


def test_convolutional_units_sum_over_positions_before_squaring():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 16, 3)
    ).double()
    gates = gateon.attach(model, density=1.0, start=0.7)
    x, y = torch.randn(5, 1, 6, 6, dtype=double), torch.randint(0, 3, (5,))
    kept = []
    gates.gates["0"].register_forward_hook(
        lambda m, a, out: (out.retain_grad(), kept.append(out))[0]
    )
    mu = observed(model, gates, lambda m: nn.functional.cross_entropy(m(x), y))
    literal = reference.unit_relevance(kept[0].grad.flatten(2), kept[0].detach().flatten(2))
    assert_same(mu["0"], reference.normalise(literal))
    per_position = (kept[0].grad * kept[0]).square().sum((0, 2, 3))
    assert not torch.allclose(mu["0"], relevance.normalise(per_position.detach()), rtol=1e-3), (
        "the order matters here"
    )


def keep(into, name, module, args, output):
    output.retain_grad()
    into[name] = output


def test_one_context_per_sample_gathers_the_relevance_of_each_sample_in_its_own_context():
    model, gates = gated_mlp(contexts=3)
    x, y = torch.randn(6, 6, dtype=double), torch.randint(0, 3, (6,))
    contexts = torch.tensor([0, 1, 2, 2, 1, 0])
    alone = {name: torch.zeros(gate.site.units, dtype=double) for name, gate in gates.gates.items()}
    for n, k in enumerate(contexts.tolist()):
        gates.switch(k)
        out = {}
        hooks = [
            gate.register_forward_hook(partial(keep, out, name))
            for name, gate in gates.gates.items()
        ]
        nn.functional.cross_entropy(model(x[n : n + 1]), y[n : n + 1]).backward()
        for name, o in out.items():
            alone[name] += (o.grad * o).detach().square()[0]
        for hook in hooks:
            hook.remove()
    model.zero_grad()
    gates.switch(contexts)
    together = observed(model, gates, lambda m: nn.functional.cross_entropy(m(x), y))
    for name, mu in alone.items():
        assert_same(together[name], reference.normalise(mu))


@settings(max_examples=25, deadline=None)
@given(
    scale=st.floats(1e-6, 1e6), seed=st.integers(0, 100), per=st.sampled_from(["unit", "parameter"])
)
def test_the_scale_of_the_loss_does_not_matter(scale, seed, per):
    results = []
    for factor in (1.0, scale):
        model, gates = gated_mlp(seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        handle = gateon.obstruct(optimizer, gates, per=per, rate=0.01, apply="step")
        torch.manual_seed(seed)
        x, y = torch.randn(5, 6, dtype=double), torch.randint(0, 3, (5,))
        (factor * nn.functional.cross_entropy(model(x), y)).backward()
        optimizer.step()
        results.append(handle.availability)
        assert any((A < 1).any() for A in handle.availability.values())
    assert_same(results[1], results[0])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30))
def test_normalised_relevance_has_mean_one_and_keeps_its_order(values):
    mu = torch.tensor(values, dtype=double)
    normal = relevance.normalise(mu)
    torch.testing.assert_close(normal.mean(), torch.ones((), dtype=double))
    assert torch.equal(normal.argsort(stable=True), mu.argsort(stable=True))


def test_next_layer_equals_its_twins():
    x, reader = torch.randn(7, 5, dtype=double), nn.Linear(5, 4).double()
    mu = relevance.activity(x) * relevance.outgoing(reader, 5)
    torch.testing.assert_close(mu, reference.next_layer_relevance(x, reader.weight.detach()))
    slope = torch.randn(7, 4, dtype=double)
    gated = relevance.next_layer_gated(x, reader, slope)
    torch.testing.assert_close(
        gated, reference.next_layer_gated_relevance(x, reader.weight.detach(), slope)
    )
    torch.testing.assert_close(relevance.next_layer_gated(x, reader, torch.ones_like(slope)), mu)


@pytest.mark.parametrize(
    "reader, shape",
    [
        (nn.Conv2d(4, 6, 3, groups=2), (2, 4, 5, 5)),
        (nn.Conv1d(4, 6, 3), (2, 4, 5)),
        (nn.ConvTranspose2d(4, 6, 2, groups=2), (2, 4, 3, 3)),
        (nn.Linear(4 * 6, 5), (2, 4 * 6)),
    ],
)
def test_outgoing_weights_are_those_an_impulse_at_each_unit_meets(reader, shape):
    reader = reader.double()
    squared = {"weight": reader.weight.detach().square(), "bias": torch.zeros_like(reader.bias)}
    met = []
    for unit in range(4):
        impulse = torch.zeros(shape, dtype=double)
        if len(shape) == 2:  # read flattened: 6 positions a unit
            impulse[0, unit * 6 : unit * 6 + 6] = 1
        else:
            impulse[(0, unit, *[s // 2 for s in shape[2:]])] = 1
        met.append(torch.func.functional_call(reader, squared, (impulse,)).sum())
    torch.testing.assert_close(relevance.outgoing(reader, 4), torch.stack(met))
