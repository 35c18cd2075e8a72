"""Obstruction against the equations, read literally; its options, its state, and what it refuses."""

from __future__ import annotations

import copy
import itertools
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gateon
from reference import (
    activity_relevance,
    availability,
    next_layer_gated_relevance,
    next_layer_relevance,
    normalise,
    parameter_relevance,
    unit_relevance,
)
from rounding import assert_same

pytestmark = pytest.mark.numeric

both_views = pytest.mark.parametrize("per", ["unit", "parameter"])
RATE, EPSILON, LR = 0.2, 0.3, 0.1


def mlp(contexts=2, dtype=torch.float64, density=0.7):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)
    ).to(dtype)
    return model, gateon.attach(model, contexts=contexts, density=density)


def batch(n=0, size=7, dtype=torch.float64):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(size, 5, generator=generator).to(dtype), torch.randint(
        0, 3, (size,), generator=generator
    )


def learn(model, optimizer, n=0):
    x, y = batch(n, dtype=next(model.parameters()).dtype)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def literal_activities(model, gates, x):
    """(pre-activations, gated activities) of the two hidden layers, by hand."""
    gains = [torch.tanh(torch.relu(g.weight[gates.context])) for g in gates.gates.values()]
    a1 = F.linear(x, model[0].weight, model[0].bias)
    x1 = gains[0] * torch.relu(a1)
    a2 = F.linear(x1, model[2].weight, model[2].bias)
    x2 = gains[1] * torch.tanh(a2)
    return (a1, a2), (x1, x2), F.linear(x2, model[4].weight, model[4].bias), gains


def literal_step(model, gates, A, n, per, apply="step", applied=None, epsilon=EPSILON, floor=0.0):
    """One step as printed: theta <- theta - lr A dL/dtheta, then A <- clip(A (1 - rate (mu - eps)))."""
    x, y = batch(n)
    _, activities, output, _ = literal_activities(model, gates, x)
    loss = F.cross_entropy(output, y)
    named = dict(model.named_parameters())
    gradients = dict(
        zip(named, torch.autograd.grad(loss, list(named.values()), retain_graph=True), strict=True)
    )
    to_activity = torch.autograd.grad(loss, activities)
    scales = A if apply == "step" else applied
    new = {}
    for site, g, h in zip("02", to_activity, activities, strict=True):
        if per == "unit":
            mu = normalise(unit_relevance(g.detach()[..., None], h.detach()[..., None]))
            new[site] = availability(A[site], mu, RATE, epsilon, floor)
        else:
            keys = [f"{site}.weight", f"{site}.bias"]
            mus = [parameter_relevance(gradients[k], named[k].detach()).flatten() for k in keys]
            mu = normalise(torch.cat(mus)).split([m.numel() for m in mus])
            for k, m in zip(keys, mu, strict=True):
                new[k] = availability(A[k], m.view_as(A[k]), RATE, epsilon, floor)
    with torch.no_grad():
        for k, p in named.items():
            scale = torch.ones((), dtype=p.dtype)
            if k in scales:
                scale = scales[k]
            elif k[0] in scales and "context" not in k:
                scale = scales[k[0]].view([-1] + [1] * (p.dim() - 1))
            p.copy_(p - LR * scale * gradients[k])
    return new


def ones_like_availability(handle):
    return {k: torch.ones_like(A) for k, A in handle.availability.items()}


@both_views
@pytest.mark.parametrize("floor", [0.0, 0.6])
@pytest.mark.parametrize("apply", ["step", "switch"])
def test_steps_follow_the_equations_literally(per, apply, floor):
    model, gates = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    handle = gateon.obstruct(
        optimizer, gates, per=per, rate=RATE, epsilon=EPSILON, floor=floor, apply=apply
    )
    twin, its_gates = mlp()
    A = applied = ones_like_availability(handle)
    for n in range(9):
        if n in (3, 6):
            gates.switch(n // 3 % 2)
            its_gates.switch(n // 3 % 2)
            applied = A
        learn(model, optimizer, n)
        A = literal_step(twin, its_gates, A, n, per, apply, applied, floor=floor)
        assert_same(dict(model.named_parameters()), dict(twin.named_parameters()))
        assert_same(handle.availability, A)
        assert_same(handle.applied, A if apply == "step" else applied)
    lowest = min(a.min().item() for a in A.values())
    assert lowest == floor if floor else lowest < 0.5
    assert handle.steps == 9


def test_the_first_step_is_fully_plastic_and_the_second_is_not():
    for apply, steps_alike in (("step", 1), ("switch", 5)):
        model, gates = mlp()
        plain, _ = mlp()
        optimizers = [torch.optim.SGD(m.parameters(), lr=LR) for m in (model, plain)]
        gateon.obstruct(optimizers[0], gates, rate=RATE, apply=apply)
        for n in range(5):
            learn(model, optimizers[0], n)
            learn(plain, optimizers[1], n)
            assert torch.equal(model[0].weight, plain[0].weight) == (n < steps_alike)


@both_views
def test_switching_to_the_active_context_or_looking_at_another_is_no_switch(per):
    model, gates = mlp()
    handle = gateon.obstruct(torch.optim.SGD(model.parameters(), lr=LR), gates, per=per, rate=RATE)
    learn(model, handle.optimizers[0])
    gates.switch(0)
    gates.show(1)
    gates.show(0)
    assert all((A == 1).all() for A in handle.applied.values())
    gates.switch(1)
    assert all(
        torch.equal(A, handle.availability[k]) and (A < 1).any() for k, A in handle.applied.items()
    )


@both_views
def test_gradient_scaling_multiplies_the_gradient_and_relevance_is_that_of_the_unscaled_one(per):
    model, gates = mlp()
    twin, its_gates = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    handle = gateon.obstruct(
        optimizer, gates, per=per, rate=RATE, epsilon=EPSILON, apply="step", scale="gradient"
    )
    A = ones_like_availability(handle)
    for n in range(4):
        learn(model, optimizer, n)
        A = literal_step(twin, its_gates, A, n, per)
        assert_same(handle.availability, A)
    # for plain descent both scalings are one
    assert_same(dict(model.named_parameters()), dict(twin.named_parameters()))


def test_adam_undoes_gradient_scaling_but_not_update_scaling():
    sizes = {}
    for scale in ("gradient", "update"):
        model, gates = mlp()
        handle = gateon.obstruct(
            torch.optim.Adam(model.parameters(), lr=1e-3), gates, rate=0.0, scale=scale
        )
        handle.load_state_dict(
            {
                k: v if k == "steps" else torch.full_like(v, 0.01)
                for k, v in handle.state_dict().items()
            }
        )
        before = model[2].weight.detach().clone()
        learn(model, handle.optimizers[0])
        sizes[scale] = (model[2].weight - before).abs().max().item()
    assert sizes["update"] == pytest.approx(1e-5, rel=0.01) and sizes["gradient"] > 5e-4


# Measures of relevance.


@pytest.mark.parametrize("measure", ["activity", "next-layer", "next-layer-gated"])
def test_measures_of_an_mlp_equal_literal_loops(measure):
    model, gates = mlp()
    x, _ = batch()
    (_, a2), (x1, x2), _, gains = literal_activities(model, gates, x)
    W2, W3 = model[2].weight.detach(), model[4].weight.detach()
    x1, x2 = x1.detach(), x2.detach()
    slope = (gains[1] * (1 - torch.tanh(a2) ** 2)).detach()
    expected = {
        "activity": (activity_relevance(x1[..., None]), activity_relevance(x2[..., None])),
        "next-layer": (next_layer_relevance(x1, W2), next_layer_relevance(x2, W3)),
        "next-layer-gated": (
            next_layer_gated_relevance(x1, W2, slope),
            next_layer_gated_relevance(x2, W3, torch.ones(len(x), 3, dtype=x.dtype)),
        ),
    }[measure]
    handle = gateon.obstruct(
        torch.optim.SGD(model.parameters(), lr=LR), gates, rate=RATE, relevance=measure
    )
    learn(model, handle.optimizers[0])
    for site, mu in zip("02", expected, strict=True):
        A = availability(torch.ones_like(mu), normalise(mu), RATE, 0.0)
        assert_same(handle.availability[site], A)


def cnn():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.Softplus(),
        nn.Conv2d(3, 4, 3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16, 5),
        nn.Linear(5, 2),
    ).double()
    return model, gateon.attach(model, contexts=2, density=0.8)


@pytest.mark.parametrize("measure", ["gradient", "activity", "next-layer", "next-layer-gated"])
def test_measures_of_a_convolutional_network_equal_literal_loops(measure):
    model, gates = cnn()
    images = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    gain = {k: torch.tanh(torch.relu(g.weight[0])).detach() for k, g in gates.gates.items()}
    x1 = gain["0"].view(-1, 1, 1) * F.softplus(
        F.conv2d(images, model[0].weight, model[0].bias, padding=1)
    )
    a2 = F.conv2d(x1, model[2].weight, model[2].bias)
    x2 = gain["2"].view(-1, 1, 1) * torch.tanh(a2)
    x3 = gain["5"] * F.linear(x2.flatten(1), model[5].weight, model[5].bias)
    loss = F.linear(x3, model[6].weight, model[6].bias).square().sum()
    W2, W3 = model[2].weight.detach(), model[5].weight.detach().view(5, 4, 2, 2)
    slope = gain["2"].view(-1, 1, 1) * (1 - torch.tanh(a2.detach()) ** 2)
    mu1, mu2 = torch.zeros(3, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    if measure == "gradient":
        g1, g2 = torch.autograd.grad(loss, (x1, x2))
        mu1, mu2 = (
            unit_relevance(g1.flatten(2), x1.detach().flatten(2)),
            unit_relevance(g2.flatten(2), x2.detach().flatten(2)),
        )
    elif measure == "next-layer-gated":
        for i, n, j, p, q, u, v in itertools.product(
            range(3), range(3), range(4), range(2), range(2), range(3), range(3)
        ):
            mu1[i] += (slope[n, j, p, q] * W2[j, i, u, v] * x1[n, i, p + u, q + v].detach()) ** 2
        for i, n, j, p, q in itertools.product(range(4), range(3), range(5), range(2), range(2)):
            mu2[i] += (gain["5"][j] * W3[j, i, p, q] * x2[n, i, p, q].detach()) ** 2
    else:
        mu1, mu2 = (
            activity_relevance(x1.detach().flatten(2)),
            activity_relevance(x2.detach().flatten(2)),
        )
        if measure == "next-layer":
            mu1 *= torch.stack([W2[:, i].square().sum() for i in range(3)])
            mu2 *= torch.stack([W3[:, i].square().sum() for i in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    handle = gateon.obstruct(optimizer, gates, rate=RATE, relevance=measure)
    model(images).square().sum().backward()
    optimizer.step()
    for site, mu in (("0", mu1), ("2", mu2)):
        A = availability(torch.ones_like(mu), normalise(mu), RATE, 0.0)
        assert_same(handle.availability[site], A)


# Options.


@both_views
def test_rates_by_pattern_the_first_that_matches(per):
    model, gates = mlp()
    handle = gateon.obstruct(
        torch.optim.SGD(model.parameters(), lr=LR), gates, per=per, rate={"0": 0.0, "*": RATE}
    )
    learn(model, handle.optimizers[0])
    assert all((A == 1).all() == name.startswith("0") for name, A in handle.availability.items())


@both_views
def test_the_head_has_availability_only_if_asked(per):
    for head in (False, True):
        model, gates = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        handle = gateon.obstruct(optimizer, gates, per=per, rate=RATE, head=head)
        assert any(name.startswith("4") for name in handle.availability) == head
        handle.load_state_dict({k: torch.zeros_like(v) for k, v in handle.state_dict().items()})
        before = model[4].weight.detach().clone()
        learn(model, optimizer)
        assert torch.equal(before, model[4].weight) == head


def test_biases_apart_have_a_mean_of_their_own():
    for apart in (False, True):
        model, gates = mlp()
        handle = gateon.obstruct(
            torch.optim.SGD(model.parameters(), lr=LR),
            gates,
            per="parameter",
            rate=1e-3,
            bias_apart=apart,
        )
        learn(model, handle.optimizers[0])
        means = [
            (1 - handle.availability[f"0.{n}"].mean().item()) / 1e-3 for n in ("weight", "bias")
        ]
        if apart:
            assert means == pytest.approx([1, 1])
        else:
            assert abs(means[1] - 1) > 0.05 and (
                40 * means[0] + 8 * means[1]
            ) / 48 == pytest.approx(1)


@both_views
def test_frozen_patterns_freeze_what_they_name(per):
    model, gates = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, weight_decay=0.1)
    gateon.obstruct(optimizer, gates, per=per, frozen=["0.w*", "4.bias"])
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    for n in range(3):
        learn(model, optimizer, n)
    still = {n for n, p in model.named_parameters() if torch.equal(p, before[n])}
    assert still == {"0.weight", "4.bias"}


@both_views
def test_a_bias_that_a_norm_takes_away_again_stays_and_with_it_what_other_contexts_have_stored(per):
    torch.manual_seed(0)
    normed = (
        nn.Conv2d(1, 6, 3),
        gateon.ContextNorm(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 36, 5),
        nn.ReLU(),
    )
    model = nn.Sequential(*normed, nn.Linear(5, 3))
    gates = gateon.attach(model, contexts=2, density=0.7)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    gateon.obstruct(optimizer, gates, per=per, rate=0.0)
    before = copy.deepcopy(model.state_dict())
    for _ in range(5):
        F.cross_entropy(model(torch.randn(16, 1, 8, 8)), torch.randint(0, 3, (16,))).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert torch.equal(model[0].bias, before["0.bias"])
    assert not torch.equal(model[0].weight, before["0.weight"])
    assert not torch.equal(model[4].bias, before["4.bias"])  # no norm behind it


# Trap 10.


def test_a_weight_owned_twice_takes_the_smaller_availability():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model[2].weight = model[0].weight
    gates = gateon.attach(model, start="open")
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    handle = gateon.obstruct(optimizer, gates, rate=0.0)
    one, other = torch.tensor([0.0, 0.5, 1.0, 0.25]), torch.tensor([1.0, 0.25, 0.5, 0.0])
    state = handle.state_dict()
    handle.load_state_dict(
        state
        | {
            f"{s}:{kind}": A
            for s, A in (("0", one), ("2", other))
            for kind in ("running", "applied")
        }
    )
    before = model[0].weight.detach().clone()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    moved = before - model[0].weight.detach()
    torch.testing.assert_close(moved, torch.tensor([0.0, 0.25, 0.5, 0.0])[:, None].expand(4, 4))
    assert torch.equal(before[[0, 3]], model[0].weight[[0, 3]])


# What has no units.


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.hidden, self.act, self.head = nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)

    def forward(self, x):
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.head(self.act(self.hidden(x)))


def test_norms_behind_sums_are_observed_and_attentions_input_is_kept_per_parameter():
    torch.manual_seed(0)
    model = Block()
    gates = gateon.attach(model, example=torch.randn(2, 3, 8), density=0.8)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    handle = gateon.obstruct(optimizer, gates, rate=0.05, apply="step")
    assert handle.availability["norm"].shape == (8,) and "norm" not in gates.gates
    assert handle.availability["attention.in_proj_weight"].shape == (24, 8)
    for n in range(3):
        torch.manual_seed(n)
        optimizer.zero_grad()
        model(torch.randn(4, 3, 8)).square().sum().backward()
        optimizer.step()
    assert all((A < 1).any() for A in handle.availability.values())
    handle.load_state_dict({k: torch.zeros_like(v) for k, v in handle.state_dict().items()})
    before = {
        n: p.detach().clone()
        for n, p in model.named_parameters()
        if not n.startswith("head") and "context" not in n
    }
    model(torch.randn(4, 3, 8)).square().sum().backward()
    optimizer.step()
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters() if n in before)


# Handle.


@both_views
@pytest.mark.parametrize("measure", ["gradient", "next-layer-gated"])
def test_remove_makes_optimizer_and_model_plain_again(per, measure):
    model, gates = mlp()
    hooks = {
        n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in model.named_modules() if n
    }
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    handle = gateon.obstruct(optimizer, gates, per=per, rate=RATE, apply="step", relevance=measure)
    learn(model, optimizer)
    handle.remove()
    assert not gates.listeners and all(tap.tap is None for tap in gates.taps.values())
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
    assert hooks == {
        n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in model.named_modules() if n
    }
    plain, _ = mlp()
    plain.load_state_dict(model.state_dict())
    its_optimizer = torch.optim.Adam(plain.parameters(), lr=0.01)
    its_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for n in range(3):
        learn(model, optimizer, n)
        learn(plain, its_optimizer, n)
    assert all(
        torch.equal(p, q) for p, q in zip(model.parameters(), plain.parameters(), strict=True)
    )
    gateon.obstruct(optimizer, gates, per=per)  # and can begin again


@both_views
def test_follow_moves_to_another_optimizer_and_keeps_availability(per):
    model, gates = mlp()
    old, new = (
        torch.optim.SGD(model.parameters(), lr=LR),
        torch.optim.SGD(model.parameters(), lr=LR),
    )
    handle = gateon.obstruct(old, gates, per=per, rate=RATE, apply="step")
    learn(model, old)
    kept = {k: A.clone() for k, A in handle.availability.items()}
    handle.follow(new)
    assert not old._optimizer_step_pre_hooks and not old._optimizer_step_post_hooks
    assert_same(handle.availability, kept)
    twin, its_gates = mlp()
    single = torch.optim.SGD(twin.parameters(), lr=LR)
    gateon.obstruct(single, its_gates, per=per, rate=RATE, apply="step")
    learn(twin, single)
    learn(twin, single, 1)
    learn(model, new, 1)
    assert all(
        torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True)
    )
    stranger = torch.optim.SGD(mlp()[0].parameters(), lr=LR)
    with pytest.raises(ValueError, match="not a parameter of the model"):
        handle.follow(stranger)
    assert handle.optimizers == [new] and len(new._optimizer_step_pre_hooks) == 1


@both_views
@pytest.mark.parametrize("apply", ["step", "switch"])
def test_state_goes_round_and_learning_goes_on_alike(per, apply):
    runs = []
    for _ in range(2):
        model, gates = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        runs.append(
            (
                model,
                optimizer,
                gateon.obstruct(optimizer, gates, per=per, rate=RATE, apply=apply),
                gates,
            )
        )
    (model, optimizer, handle, gates), (model2, optimizer2, handle2, gates2) = runs
    learn(model, optimizer)
    gates.switch(1)
    learn(model, optimizer, 1)
    model2.load_state_dict(model.state_dict())
    gates2.show(1)
    handle2.load_state_dict(handle.state_dict())
    assert handle2.steps == 2
    learn(model, optimizer, 2)
    learn(model2, optimizer2, 2)
    assert all(
        torch.equal(p, q) for p, q in zip(model.parameters(), model2.parameters(), strict=True)
    )
    assert_same(handle.state_dict(), handle2.state_dict())


def test_a_state_that_does_not_fit_changes_nothing():
    model, gates = mlp()
    handle = gateon.obstruct(torch.optim.SGD(model.parameters(), lr=LR), gates, rate=RATE)
    learn(model, handle.optimizers[0])
    before = handle.state_dict()
    unknown, short = before | {"9:running": torch.ones(2)}, before | {"2:running": torch.zeros(5)}
    missing = {k: torch.zeros_like(v) for k, v in before.items() if k != "2:applied"}
    for state in (unknown, short, missing):
        with pytest.raises(ValueError, match="is missing, unknown or has another shape"):
            handle.load_state_dict(state)
        assert_same(before, handle.state_dict())


def test_saturation_counts_units_below_a_threshold():
    model, gates = mlp()
    handle = gateon.obstruct(torch.optim.SGD(model.parameters(), lr=LR), gates)
    A = torch.tensor([0.0, 0.01, 0.02, 0.97, 1.0, 0.5, 0.5, 1.0], dtype=torch.float64)
    handle.load_state_dict(handle.state_dict() | {"0:running": A})
    found = {site: one[:2] for site, one in handle.saturation().items()}
    assert found == {"0": (pytest.approx(3 / 8), pytest.approx(0.5)), "2": (0.0, 1.0)}


# Bad arguments.

BAD = [
    ({"per": "layer"}, 'per must be "unit" or "parameter", got'),
    ({"rate": -0.1}, "The rate of site '0' must be at least 0 and finite, got -0.1"),
    ({"rate": float("nan")}, "The rate of site '0' must be at least 0 and finite, got nan"),
    ({"rate": {"7": 0.1}}, "No site matches '7': use a pattern for names such as"),
    ({"rate": {"0": 0.1}}, "rate does not cover site '2': add a pattern for it"),
    ({"epsilon": -1.0}, "epsilon must be at least 0"),
    ({"epsilon": float("inf")}, "epsilon must be at least 0 and finite"),
    ({"floor": 1.5}, "floor must be between 0 and 1"),
    ({"relevance": "taylor"}, "relevance must be a function or one of gradient, fisher"),
    ({"apply": "never"}, 'apply must be "step" or "switch"'),
    ({"scale": "weights"}, 'scale must be "update" or "gradient"'),
    (
        {"frozen": "nothing.*"},
        "No parameter matches 'nothing.*': use a pattern for names such as",
    ),
    ({"frozen": "*context_gate*"}, "No parameter matches"),
    (
        {"relevance": "next-layer", "head": True},
        "needs the layer that reads site '4', and none was found: use",
    ),
    (
        {"relevance": "next-layer-gated", "head": True},
        "needs the layer that reads site '4', and none was found: use",
    ),
]


def is_one_sentence(message):
    return (
        message.endswith(".")
        and "\n" not in message
        and not re.search(r"\.\s+[A-Z].*\.\s+[A-Z]", message)
    )


@pytest.mark.parametrize(("options", "message"), BAD, ids=[str(options) for options, _ in BAD])
def test_bad_options_are_told_in_one_sentence_and_change_nothing(options, message):
    model, gates = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    hooks = {
        n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in model.named_modules()
    }
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        gateon.obstruct(optimizer, gates, **options)
    assert is_one_sentence(str(caught.value))
    assert (
        not gates.listeners
        and not optimizer._optimizer_step_pre_hooks
        and not optimizer._optimizer_step_post_hooks
    )
    assert all(tap.tap is None for tap in gates.taps.values())
    assert hooks == {
        n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in model.named_modules()
    }
    gateon.obstruct(optimizer, gates)


@pytest.mark.parametrize(
    "optimizer",
    [None, [], 3, [nn.Linear(2, 2)]],
    ids=["None", "no optimizer", "a number", "a list of layers"],
)
def test_what_is_no_optimizer_is_told_so(optimizer):
    _, gates = mlp()
    with pytest.raises(
        ValueError,
        match=r"optimizer must be a torch optimizer or a list of them, got \w+: build one",
    ):
        gateon.obstruct(optimizer, gates)
    assert not gates.listeners


def test_an_optimizer_named_twice_and_gates_that_are_none_are_told_so():
    model, gates = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    with pytest.raises(ValueError, match="listed twice: list each once"):
        gateon.obstruct([optimizer, optimizer], gates)
    with pytest.raises(ValueError, match="gates must be what attach"):
        gateon.obstruct(optimizer, model)
    assert not gates.listeners and not optimizer._optimizer_step_pre_hooks


def test_obstructing_twice_is_refused_and_the_first_goes_on():
    model, gates = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    handle = gateon.obstruct(optimizer, gates, rate=RATE)
    with pytest.raises(ValueError, match="obstructed already"):
        gateon.obstruct(optimizer, gates)
    learn(model, optimizer)
    assert handle.steps == 1 and len(optimizer._optimizer_step_pre_hooks) == 1


def test_parameters_of_another_model_are_named_by_their_group():
    model, gates = mlp()
    optimizer = torch.optim.SGD(
        [{"params": model.parameters()}, {"params": nn.Linear(2, 7).parameters()}], lr=LR
    )
    with pytest.raises(
        ValueError, match=r"Parameter group 1 of SGD holds a tensor of shape \(7, 2\)"
    ):
        gateon.obstruct(optimizer, gates)
