"""Obstruction and every optimizer of torch.optim: A = 1 changes no bit, A = 0 moves no bit, idle contexts rest."""

from __future__ import annotations

import copy
import inspect
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR

import gateon
from rounding import assert_same

# Momentum and weight decay wherever there are such things: those move a weight that has no
# gradient.
SETTINGS = {
    "Adadelta": {"lr": 1.0, "weight_decay": 0.1},
    "Adafactor": {"lr": 0.1, "weight_decay": 0.1},
    "Adagrad": {"lr": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.1},
    "Adam": {"lr": 0.02, "weight_decay": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.02, "weight_decay": 0.1},
    "Adamax": {"lr": 0.02, "weight_decay": 0.1},
    "ASGD": {"lr": 0.1, "weight_decay": 0.1},
    "Muon": {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.9},
    "NAdam": {"lr": 0.02, "weight_decay": 0.1},
    "RAdam": {"lr": 0.02, "weight_decay": 0.1},
    "RMSprop": {"lr": 0.01, "weight_decay": 0.1, "momentum": 0.9, "centered": True},
    "Rprop": {"lr": 0.01},
    "SGD": {"lr": 0.1, "weight_decay": 0.1, "momentum": 0.9, "nesterov": True},
}
REFUSED = ("LBFGS", "SparseAdam")
VARIANTS = [
    ("Adam", {"foreach": True}),
    ("Adam", {"fused": True}),
    ("Adam", {"foreach": False}),
    ("AdamW", {"fused": True}),
    ("Adagrad", {"fused": True}),
    ("SGD", {"foreach": True}),
    ("SGD", {"fused": True}),
    ("SGD", {"foreach": False}),
    ("NAdam", {"foreach": True}),
    ("RMSprop", {"foreach": True}),
]
ALL = [(name, {}) for name in SETTINGS] + VARIANTS
every = pytest.mark.parametrize(
    ("name", "variant"), ALL, ids=lambda v: v if isinstance(v, str) else "-".join(v)
)
both_views = pytest.mark.parametrize("per", ["unit", "parameter"])


def gated_network(contexts=1, bias=True, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(6, 9, bias=bias),
        nn.ReLU(),
        nn.Linear(9, 7, bias=bias),
        nn.Tanh(),
        nn.Linear(7, 3, bias=bias),
    )
    return model, gateon.attach(model, contexts=contexts, density=0.7)


def optimizer_of(name, model, variant=()):
    return getattr(torch.optim, name)(model.parameters(), **SETTINGS[name] | dict(variant))


def batches(steps=6):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield (
            torch.randn(12, 6, generator=generator),
            torch.randint(0, 3, (12,), generator=generator),
        )


def train(model, optimizer, steps=6):
    for x, y in batches(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def values(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def weights(model):
    return {name: v for name, v in values(model).items() if "context_gate" not in name}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for key in one:
        assert torch.equal(one[key], other[key]), key


def memory(model, optimizer):
    names = {p: name for name, p in model.named_parameters()}
    return {
        f"{names[p]}:{k}": torch.as_tensor(v)
        for p, state in optimizer.state.items()
        for k, v in state.items()
    }


def set_availability(handle, value):
    handle.load_state_dict(
        {
            k: v if k == "steps" else torch.full_like(v, value)
            for k, v in handle.state_dict().items()
        }
    )


def test_every_optimizer_of_torch_is_either_tried_here_or_refused():
    found = {
        n
        for n, o in vars(torch.optim).items()
        if inspect.isclass(o) and issubclass(o, torch.optim.Optimizer)
    }
    assert found - {"Optimizer"} == set(SETTINGS) | set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_optimizers_that_cannot_apply_are_refused_by_name(name):
    model, gates = gated_network()
    optimizer = getattr(torch.optim, name)(model.parameters())
    with pytest.raises(
        ValueError, match=rf"^{name} cannot be obstructed: .*Use SGD, Adam or another optimizer\.$"
    ):
        gateon.obstruct(optimizer, gates)
    assert (
        not optimizer._optimizer_step_pre_hooks
        and not optimizer._optimizer_step_post_hooks
        and not gates.listeners
    )


# What leaves availability at exactly 1: no rate; the first context; every step raised back to the
# upper bound.
FULLY_AVAILABLE = [
    {"rate": 0.0},
    {"rate": 0.5, "apply": "switch"},
    {"rate": 1e-3, "epsilon": 1e5, "apply": "step"},
]


@every
@both_views
@pytest.mark.parametrize(
    "options", FULLY_AVAILABLE, ids=["no rate", "first context", "at the bound"]
)
def test_full_availability_is_bit_equal_to_the_plain_optimizer(name, variant, per, options):
    plain, _ = gated_network(bias=name != "Muon")
    model, gates = gated_network(bias=name != "Muon")
    optimizers = optimizer_of(name, plain, variant), optimizer_of(name, model, variant)
    start = values(model)
    handle = gateon.obstruct(optimizers[1], gates, per=per, head=True, **options)
    train(plain, optimizers[0])
    train(model, optimizers[1])
    assert all((A == 1).all() for A in handle.applied.values())
    assert_equal(values(plain), values(model))
    assert_equal(memory(plain, optimizers[0]), memory(model, optimizers[1]))
    assert not any(torch.equal(start[key], value) for key, value in values(model).items())
    assert handle.steps == 6


@every
@both_views
def test_frozen_names_do_not_move_by_a_bit(name, variant, per):
    model, gates = gated_network(bias=name != "Muon")
    optimizer = optimizer_of(name, model, variant)
    train(model, optimizer, 3)  # momentum is alive
    before = values(model)
    gateon.obstruct(optimizer, gates, per=per, rate=0.1, frozen="*")
    train(model, optimizer)
    assert_equal(weights(model), {key: before[key] for key in weights(model)})
    assert not torch.equal(before["1.context_gate.weight"], values(model)["1.context_gate.weight"])


@every
@both_views
def test_zero_availability_does_not_move_by_a_bit(name, variant, per):
    model, gates = gated_network(bias=name != "Muon")
    optimizer = optimizer_of(name, model, variant)
    train(model, optimizer, 3)
    before = weights(model)
    handle = gateon.obstruct(optimizer, gates, per=per, rate=0.1, epsilon=0.5, head=True)
    set_availability(handle, 0.0)
    train(model, optimizer)
    assert_equal(weights(model), before)


@pytest.mark.numeric
@every
@both_views
def test_partial_availability_scales_the_update_whatever_the_optimizer(name, variant, per):
    plain, _ = gated_network(bias=name != "Muon")
    model, gates = gated_network(bias=name != "Muon")
    optimizers = optimizer_of(name, plain, variant), optimizer_of(name, model, variant)
    set_availability(gateon.obstruct(optimizers[1], gates, per=per, rate=0.0, head=True), 0.25)
    before = weights(model)
    train(plain, optimizers[0], 1)
    train(model, optimizers[1], 1)
    for key, value in weights(model).items():
        full = weights(plain)[key] - before[key]
        assert full.abs().max() > 0
        # Weights of about one are rounded at every addition: 1e-6 is eight times their eps.
        torch.testing.assert_close(value - before[key], 0.25 * full, rtol=1e-4, atol=1e-6)


@pytest.mark.numeric
@every
@both_views
def test_gradients_used_as_scratch_memory_do_not_change_relevance(name, variant, per):
    # Nesterov momentum with foreach writes into the gradients, fused optimizers may unscale them
    # there.
    model, gates = gated_network(bias=name != "Muon")
    handle = gateon.obstruct(
        optimizer_of(name, model, variant), gates, per=per, rate=0.01, head=True
    )
    before = copy.deepcopy(weights(model))
    train(model, handle.optimizers[0], 1)
    reference, its_gates = gated_network(bias=name != "Muon")
    other = gateon.obstruct(
        torch.optim.SGD(reference.parameters(), lr=0.1), its_gates, per=per, rate=0.01, head=True
    )
    assert_equal(weights(reference), before)
    train(reference, other.optimizers[0], 1)
    for key, A in handle.availability.items():
        assert (A < 1).any()
        torch.testing.assert_close(A, other.availability[key])


@every
def test_rows_of_idle_contexts_do_not_move_by_a_bit(name, variant):
    model, gates = gated_network(contexts=3, bias=name != "Muon")
    optimizer = optimizer_of(name, model, variant)
    gateon.obstruct(optimizer, gates, rate=0.1)
    start = [gate.weight.detach().clone() for gate in gates.gates.values()]
    train(model, optimizer, 4)
    between = [gate.weight.detach().clone() for gate in gates.gates.values()]
    gates.switch(1)  # the momentum of context 0 is alive
    train(model, optimizer, 4)
    after = [gate.weight.detach().clone() for gate in gates.gates.values()]
    for v0, v1, v2 in zip(start, between, after, strict=True):
        assert not torch.equal(v0[0], v1[0]) and torch.equal(v0[1:], v1[1:])
        assert not torch.equal(v1[1], v2[1]) and torch.equal(v1[[0, 2]], v2[[0, 2]])


@pytest.mark.parametrize("per", ["unit", "parameter"])
def test_each_sample_its_own_context_moves_just_the_rows_that_took_part(per):
    model, gates = gated_network(contexts=4)
    optimizer = optimizer_of("SGD", model)
    gateon.obstruct(optimizer, gates, per=per)
    train(model, optimizer, 2)
    before = [gate.weight.detach().clone() for gate in gates.gates.values()]
    gates.switch(torch.tensor([1, 3] * 6))
    train(model, optimizer, 3)
    for v, gate in zip(before, gates.gates.values(), strict=True):
        moved = (gate.weight != v).any(1).tolist()
        assert moved == [False, True, False, True]


@pytest.mark.numeric
@every
def test_a_context_added_in_the_middle_of_training_equals_one_that_was_there_from_the_beginning(
    name, variant
):
    variant = variant if name == "Rprop" else variant | {"weight_decay": 0.0}
    results = []
    for contexts in (1, 2):
        model, gates = gated_network(contexts=contexts, bias=name != "Muon")
        optimizer = optimizer_of(name, model, variant)
        gateon.obstruct(optimizer, gates, rate=0.1)
        train(model, optimizer, 4)
        if contexts == 1:
            gates.add_context()
        gates.switch(1)
        before = [gate.weight[1].detach().clone() for gate in gates.gates.values()]
        train(model, optimizer, 4)
        assert all(
            not torch.equal(v, g.weight[1])
            for v, g in zip(before, gates.gates.values(), strict=True)
        )
        assert all(torch.isfinite(v).all() for v in values(model).values())
        results.append((values(model), memory(model, optimizer)))
    if name not in (
        "Adafactor",
        "Muon",
    ):  # these look at a matrix as a whole, so that further rows matter a little
        # Not to the bit: a vectorised kernel may round the last few numbers of a tensor in another
        # way than those before.
        for one, other in zip(*results, strict=True):
            assert_same(one, other)
    else:
        assert {k: v.shape for k, v in results[0][1].items()} == {
            k: v.shape for k, v in results[1][1].items()
        }


@both_views
def test_muon_beside_adamw_as_a_list_of_optimizers(per):
    def made(obstructed, **options):
        model, gates = gated_network(contexts=2)
        flat = [
            p
            for p in model.parameters()
            if p.dim() == 2 and not any(p is g.weight for g in gates.gates.values())
        ]
        rest = [p for p in model.parameters() if not any(p is f for f in flat)]
        pair = [
            torch.optim.Muon(flat, lr=0.02, weight_decay=0.1),
            torch.optim.AdamW(rest, lr=0.02, weight_decay=0.0),
        ]
        handle = (
            gateon.obstruct(pair, gates, per=per, rate=0.05, head=True, **options)
            if obstructed
            else None
        )
        return model, pair, handle

    def train_both(model, pair):
        for x, y in batches():
            F.cross_entropy(model(x), y).backward()
            for one in pair:
                one.step()
            model.zero_grad()

    plain, pair, _ = made(False)
    train_both(plain, pair)
    model, pair, handle = made(True)
    train_both(model, pair)
    assert handle.steps == 6
    assert_equal(values(plain), values(model))
    before = weights(model)
    set_availability(handle, 0.0)
    train_both(model, pair)
    assert_equal(before, weights(model))
    # One backward pass is measured once: availability is that of a single optimizer over the same
    # parameters.
    model, pair, handle = made(True)
    x, y = next(batches())
    F.cross_entropy(model(x), y).backward()
    for one in pair:
        one.step()
    single, gates = gated_network(contexts=2)
    other = gateon.obstruct(
        torch.optim.SGD(single.parameters(), lr=0.1), gates, per=per, rate=0.05, head=True
    )
    train(single, other.optimizers[0], 1)
    assert_equal(handle.availability, other.availability)


@both_views
def test_one_of_several_optimizers_may_step_more_often(per):
    model, gates = gated_network()
    halves = (
        [p for n, p in model.named_parameters() if n.startswith("0")],
        [p for n, p in model.named_parameters() if not n.startswith("0")],
    )
    fast, slow = torch.optim.SGD(halves[0], lr=0.1), torch.optim.SGD(halves[1], lr=0.1)
    handle = gateon.obstruct([fast, slow], gates, per=per, rate=0.05)
    seen = []
    for n, (x, y) in enumerate(batches(4)):
        F.cross_entropy(model(x), y).backward()
        fast.step()
        if n % 2:
            slow.step()
        model.zero_grad()
        seen.append(handle.availability["0" if per == "unit" else "0.weight"].clone())
    assert all(not torch.equal(a, b) for a, b in pairwise(seen))


@both_views
def test_several_parameter_groups_keep_their_own_settings(per):
    def groups(model):
        hidden = [p for n, p in model.named_parameters() if n[0] in "01"]
        rest = [p for n, p in model.named_parameters() if n[0] not in "01"]
        return [
            {"params": hidden, "lr": 0.5, "momentum": 0.9},
            {"params": rest, "lr": 0.05, "weight_decay": 0.1},
        ]

    plain, _ = gated_network()
    model, gates = gated_network()
    optimizers = torch.optim.SGD(groups(plain), lr=0.1), torch.optim.SGD(groups(model), lr=0.1)
    gateon.obstruct(optimizers[1], gates, per=per, rate=0.1, frozen=["2.*", "4.weight"])
    before = values(model)
    train(model, optimizers[1], 1)
    train(plain, optimizers[0], 1)
    expected = values(plain) | {key: before[key] for key in ("2.weight", "2.bias", "4.weight")}
    assert_equal(values(model), expected)


@both_views
def test_a_group_added_later_is_obstructed_too(per):
    model, gates = gated_network()
    late = list(model[2].parameters())[:2]
    optimizer = torch.optim.SGD(
        [p for p in model.parameters() if not any(p is q for q in late)], lr=0.1
    )
    gateon.obstruct(optimizer, gates, per=per, frozen="2.*")
    optimizer.add_param_group({"params": late, "lr": 1.0, "momentum": 0.9})
    before = values(model)
    train(model, optimizer, 3)
    assert torch.equal(before["2.weight"], model[2].weight) and not torch.equal(
        before["0.weight"], model[0].weight
    )


@both_views
@pytest.mark.parametrize("named", [False, True], ids=["positional", "by name"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "Adafactor", "RMSprop"])
def test_closures_equal_the_loop_without_and_run_once(per, named, name):
    runs = []
    for closed in (False, True):
        model, gates = gated_network()
        optimizer = optimizer_of(name, model)
        handle = gateon.obstruct(optimizer, gates, per=per, rate=0.1, apply="step", head=True)
        calls = 0
        for x, y in batches():

            def closure(x=x, y=y, model=model, optimizer=optimizer):
                nonlocal calls
                calls += 1
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss

            if closed:
                returned = optimizer.step(closure=closure) if named else optimizer.step(closure)
                assert isinstance(returned, torch.Tensor) and returned.grad_fn is not None
            else:
                closure()
                optimizer.step()
        assert calls == 6
        runs.append((values(model), handle.availability, memory(model, optimizer)))
    for plain, by_closure in zip(*runs, strict=True):
        assert_equal(plain, by_closure)
    assert all((A < 1).any() for A in runs[1][1].values())


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_update_sizes_follow_a_schedule(name):
    model, gates = gated_network()
    settings = {"lr": 0.1, "momentum": 0.0} if name == "SGD" else {"lr": 0.1, "betas": (0.0, 0.0)}
    optimizer = getattr(torch.optim, name)(model.parameters(), **settings)
    set_availability(gateon.obstruct(optimizer, gates, rate=0.0), 0.5)
    schedule = StepLR(optimizer, 1, gamma=0.1)
    sizes = []
    for _ in range(3):
        before = model[0].weight.detach().clone()
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
        schedule.step()
        sizes.append((before - model[0].weight.detach()).mean().item())
    assert sizes == pytest.approx([0.05, 0.005, 0.0005], rel=1e-3)


@both_views
def test_a_run_with_a_schedule_saved_and_loaded_goes_on_as_if_uninterrupted(per):
    def made():
        model, gates = gated_network()
        optimizer = optimizer_of("AdamW", model)
        handle = gateon.obstruct(optimizer, gates, per=per, rate=0.1, apply="step")
        return model, optimizer, CosineAnnealingLR(optimizer, 12), handle

    def go_on(parts, which):
        model, optimizer, schedule, _ = parts
        for x, y in list(batches(12))[which]:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()

    whole, first, second = made(), made(), made()
    go_on(whole, slice(12))
    go_on(first, slice(5))
    for old, new in zip(first, second, strict=True):
        new.load_state_dict(copy.deepcopy(old.state_dict()))
    go_on(second, slice(5, 12))
    assert_equal(values(whole[0]), values(second[0]))
    assert_equal(memory(whole[0], whole[1]), memory(second[0], second[1]))
    assert_equal(whole[3].state_dict(), second[3].state_dict())


@both_views
def test_a_maximising_optimizer_is_obstructed_the_same_way(per):
    results = []
    for sign in (1, -1):
        model, gates = gated_network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, maximize=sign < 0)
        gateon.obstruct(optimizer, gates, per=per, rate=0.1, apply="step")
        for x, y in batches():
            optimizer.zero_grad()
            (sign * F.cross_entropy(model(x), y)).backward()
            optimizer.step()
        results.append(values(model))
    assert_equal(*results)
