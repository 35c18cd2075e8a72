"""Compact execution is the same mathematics: the sub-network of a context, trained apart, against the whole network."""

from __future__ import annotations

import copy
import importlib
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import gateon
from gateon.networks import mlp, wide_resnet
from gateon.subnetwork.compact import compact
from rounding import SMOOTH_ADAM, assert_same

pytestmark = pytest.mark.numeric

double = torch.float64


# No biases before norms: their gradient is rounding noise, and so is their normalised relevance.
def dense():
    layers = [
        nn.Linear(12, 20, bias=False),
        nn.BatchNorm1d(20),
        nn.ReLU(),
        nn.Linear(20, 18),
        nn.ReLU(),
        nn.Linear(18, 4),
    ]
    return gateon.context_norms(nn.Sequential(nn.Flatten(), *layers)).double()


def released():
    return mlp(12, (20, 18), 4, norm="batch", unit_length=True).double()


def convolutional():
    return gateon.context_norms(
        nn.Sequential(
            nn.Unflatten(1, (1, 3, 4)),
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2, stride=1),
            nn.ConvTranspose2d(8, 6, 2),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(72, 16),
            nn.PReLU(16),
            nn.Linear(16, 4),
        )
    ).double()


class Residual(nn.Module):
    """Blocks whose inside can be narrowed and whose sum cannot."""

    def __init__(self):
        super().__init__()
        self.first, self.inside, self.back, self.norm = (
            nn.Linear(12, 16),
            nn.Linear(16, 24),
            nn.Linear(24, 16, bias=False),
            nn.BatchNorm1d(16),
        )
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.head(x + self.norm(self.back(torch.relu(self.inside(x)))))


def residual():
    return gateon.context_norms(Residual()).double()


def feed_forward_of_a_transformer():
    layer = nn.TransformerEncoderLayer(4, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (3, 4)), layer, nn.Flatten(), nn.Linear(12, 4)).double()


class GatedUnits(nn.Module):
    """Blocks like those of Llama and of Phi-3: units that are products of two others."""

    def __init__(self):
        super().__init__()
        self.first, self.gate, self.up, self.down = (
            nn.Linear(12, 8),
            nn.Linear(8, 14),
            nn.Linear(8, 14, bias=False),
            nn.Linear(14, 8),
        )
        self.norm = nn.RMSNorm(8)
        self.both, self.back, self.drop = nn.Linear(8, 24), nn.Linear(12, 8), nn.Dropout(0.0)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.first(x)
        x = x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        gate, up = self.both(self.norm(x)).chunk(2, dim=-1)
        return self.head(x + self.back(self.drop(up * torch.sigmoid(gate))))


def gated_units():
    return GatedUnits().double()


def with_glu():
    layers = [nn.Linear(12, 20), nn.GLU(), nn.Linear(10, 16), nn.GLU(), nn.Linear(8, 4)]
    return nn.Sequential(*layers).double()


NETWORKS = [
    dense,
    convolutional,
    residual,
    feed_forward_of_a_transformer,
    gated_units,
    with_glu,
]


def attached(network, contexts=3, **options):
    torch.manual_seed(0)
    model = network()
    example = torch.zeros(2, 12, dtype=double) if network is feed_forward_of_a_transformer else None
    return model, gateon.attach(
        model, contexts, density=0.5, start="random", width=1.0, example=example, **options
    )


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("network", [*NETWORKS, released])
def test_the_sub_network_of_every_context_has_the_outputs_of_the_whole(network, training):
    model, gates = attached(
        network, **({"before_norm": True, "power": 2} if network is released else {})
    )
    x = torch.randn(6, 12, dtype=double)
    for k in range(gates.contexts):
        small = compact(model, k)
        gates.switch(k)
        model.train(training)
        small.train(training)
        assert_same(small(x), model(x))
        sizes = [sum(p.numel() for p in m.parameters()) for m in (small, model)]
        assert sizes[0] < (0.45 if network in (dense, convolutional, released) else 0.95) * sizes[1]


def test_what_cannot_be_narrowed_stays_at_full_width():
    model, _ = attached(residual)
    small = compact(model, 1)
    assert small.inside.weight.shape == (12, 16) and small.back.weight.shape == (16, 12), (
        "the inside of the block"
    )
    assert small.first.weight.shape == (16, 12), "the summands stay"
    layer_norm = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2))
    gateon.attach(layer_norm, density=0.5)
    assert compact(layer_norm, 0)[0].weight.shape == (8, 5), "a LayerNorm looks at all units"


def trained(network, method, optimizer, compactly, contexts=(0, 1, 0), steps=6):
    torch.manual_seed(0)
    model = network()
    if network is feed_forward_of_a_transformer:
        method = copy.deepcopy(method)
        method.example = torch.zeros(2, 12, dtype=double)
    learner = gateon.Learner(
        model, optimizer=optimizer, method=copy.deepcopy(method), compact=compactly
    )
    torch.manual_seed(1)
    for context in contexts:
        for _ in range(steps):
            learner.observe(
                torch.randn(16, 12, dtype=double), torch.randint(0, 4, (16,)), context=context
            )
    assert learner.is_compact == compactly
    return learner


def learned_by(model):
    """All but statistics: those of a unit that is closed in a context are never used there."""
    return {name: tensor for name, tensor in model.state_dict().items() if "running" not in name}


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
@pytest.mark.parametrize("per", ["unit", "parameter"])
@pytest.mark.parametrize(
    "optimizer", [partial(torch.optim.SGD, lr=0.05, momentum=0.9), SMOOTH_ADAM], ids=["sgd", "adam"]
)
@pytest.mark.parametrize("network", NETWORKS)
def test_training_compactly_ends_where_training_at_full_width_does(
    network, optimizer, per, epsilon
):
    method = gateon.GateON(
        per=per, epsilon=epsilon, rate=0.05, density=0.5, width=1.0, power=1, floor=0.01
    )
    whole, part = (trained(network, method, optimizer, compactly) for compactly in (False, True))
    assert_same(learned_by(part.model), learned_by(whole.model))
    ours, theirs = whole.method.handle.state_dict(), part.method.handle.state_dict()
    assert_same(theirs, ours)
    assert any((A < 0.9).any() for name, A in ours.items() if name.endswith("applied"))


@pytest.mark.parametrize("network", [dense, with_glu])
@pytest.mark.parametrize("relevance", ["activity", "next-layer", "next-layer-gated"])
@pytest.mark.parametrize("apply", ["step", "switch"])
def test_every_measure_of_relevance_is_exact_too(relevance, apply, network):
    method = gateon.GateON(
        relevance=relevance, apply=apply, epsilon=0.5, rate=0.05, density=0.5, width=1.0, power=1
    )
    whole, part = (trained(network, method, SMOOTH_ADAM, compactly) for compactly in (False, True))
    assert_same(part.method.handle.state_dict(), whole.method.handle.state_dict())


def test_released_settings_train_compactly_to_the_same_end():
    for per in ("unit", "parameter"):
        method = gateon.preset("released", per)
        whole, part = (
            trained(released, method, SMOOTH_ADAM, compactly, steps=4)
            for compactly in (False, True)
        )
        for name, A in whole.method.handle.state_dict().items():
            if not name.startswith(("1.bias", "5.bias")):  # rounding noise before a batch norm
                assert_same(part.method.handle.state_dict()[name], A, f"{name}: ")


def test_predictions_are_those_of_the_whole_network_in_every_context():
    method = gateon.GateON(density=0.5, width=1.0, power=1)
    whole, part = (trained(dense, method, SMOOTH_ADAM, compactly) for compactly in (False, True))
    x = torch.randn(5, 12, dtype=double)
    for context in (0, 1, None):
        assert_same(part.predict(x, context), whole.predict(x, context))


def test_weight_decay_and_optimizers_that_move_what_has_no_gradient_stay_at_full_width():
    for optimizer in (
        partial(torch.optim.SGD, lr=0.1, weight_decay=1e-4),
        partial(torch.optim.AdamW, lr=1e-3),
        partial(torch.optim.ASGD, lr=1e-3),
    ):
        learner = gateon.Learner(dense(), optimizer=optimizer, method=gateon.GateON(density=0.5))
        learner.observe(torch.randn(16, 12, dtype=double), torch.randint(0, 4, (16,)), context=0)
        assert not learner.is_compact


def test_the_optimizer_remembers_only_what_is_active():
    learner = trained(dense, gateon.GateON(density=0.25), SMOOTH_ADAM, True)
    remembered = sum(
        v.numel() for state in learner.optimizer.state.values() for v in state.values() if v.dim()
    )
    everything = sum(p.numel() for p in learner.model.parameters())
    assert remembered < 2 * 0.4 * everything


def test_units_that_die_in_a_context_are_left_out_from_the_next_switch_on():
    learner = trained(
        dense, gateon.GateON(density=0.5, width=1.0), SMOOTH_ADAM, True, contexts=(0,)
    )
    gate = next(iter(gateon.gates_of(learner._work.network).gates.values()))
    before = gate.weight.shape[1]
    with torch.no_grad():
        gate.weight[0, :3] = -0.1
    for context in (1, 0):
        learner.observe(
            torch.randn(16, 12, dtype=double), torch.randint(0, 4, (16,)), context=context
        )
    gate = next(iter(gateon.gates_of(learner._work.network).gates.values()))
    assert gate.weight.shape[1] == before - 3


def test_a_sub_network_trained_by_hand_is_written_back_and_nothing_else_moves():
    model, gates = attached(dense)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    small = compact(model, 1)
    optimizer = torch.optim.SGD(small.parameters(), lr=0.1)
    x = torch.randn(6, 12, dtype=double)
    small(x).square().sum().backward()
    optimizer.step()
    expected = small.eval()(x)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    small.write_back()
    gates.switch(1)
    assert_same(model.eval()(x), expected)
    closed = gates.gain(1)["1"] == 0
    assert torch.equal(model.state_dict()["1.weight"][closed], before["1.weight"][closed])
    gates.switch(0)
    others = [name for name in before if name.endswith("context_gate.weight")]
    for name in others:
        assert torch.equal(model.state_dict()[name][[0, 2]], before[name][[0, 2]])


@pytest.mark.parametrize("network", [*NETWORKS, released])
def test_folded_for_deployment_it_is_a_plain_module_with_the_same_outputs(network, tmp_path):
    model, gates = attached(
        network, **({"before_norm": True, "power": 2} if network is released else {})
    )
    model.train()
    for _ in range(3):
        model(torch.randn(8, 12, dtype=double))
    x = torch.randn(6, 12, dtype=double)
    for k in range(gates.contexts):
        gates.show(k)
        folded = compact(model, k, fold=True)
        assert_same(folded(x), model.eval()(x))
    ours = [type(m).__name__ for m in folded.modules() if type(m).__module__.startswith("gateon.")]
    assert set(ours) <= {"UnitLength"}, "the one activity function torch has no module for"
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in folded.modules())
    if network is not residual:  # a class of this file cannot be loaded by name
        torch.save(folded, tmp_path / "folded.pt")
        torch.testing.assert_close(
            torch.load(tmp_path / "folded.pt", weights_only=False)(x), folded(x)
        )


def test_a_folded_network_can_be_exported():
    model, _ = attached(dense)
    folded = compact(model, 1, fold=True)
    x = torch.randn(6, 12, dtype=double)
    exported = torch.export.export(folded, (x,))
    torch.testing.assert_close(exported.module()(x), folded(x))


def test_a_gate_that_no_weight_can_take_is_refused():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.act, self.head = nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4)

        def forward(self, x):
            h = self.act(self.a(x))
            return self.head(h.roll(1, 1))

    model, _ = attached(lambda: Odd().double())
    with pytest.raises(ValueError, match="'a'"):
        compact(model, 0, fold=True)


def test_bad_input():
    with pytest.raises(ValueError, match="attach"):
        compact(nn.Linear(2, 2), 0)
    model, _ = attached(dense)
    with pytest.raises(IndexError, match="Context 7"):
        compact(model, 7)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(torch.relu(self.second(torch.relu(self.first(x)))))


class FixedView(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 6, 3, padding=1), nn.Linear(72, 4)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x.view(-1, 1, 3, 4))).view(-1, 72))


def with_batch_norm():
    return nn.Sequential(
        nn.Linear(12, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 4)
    ).double()


def with_alpha_dropout():
    return nn.Sequential(
        nn.Linear(12, 10), nn.SELU(), nn.AlphaDropout(0.1), nn.Linear(10, 4)
    ).double()


@pytest.mark.parametrize("make", [Tied, FixedView, with_batch_norm, with_alpha_dropout])
def test_tied_weights_fixed_sizes_and_shared_statistics_keep_their_width(make):
    model, gates = attached(lambda: make().double())
    x = torch.randn(6, 12, dtype=double)
    gates.switch(1)
    small = compact(model, 1)
    assert next(small.parameters()).shape == next(model.parameters()).shape
    assert_same(small.eval()(x), model.eval()(x))


def test_a_sub_network_of_an_obstructed_model_is_trained_with_its_availabilities():
    results = []
    for compactly in (False, True):
        model, gates = attached(dense)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = gateon.obstruct(optimizer, gates, rate=0.1, epsilon=0.5)
        torch.manual_seed(3)
        for context in (0, 1):
            gates.switch(context)
            trained, stepped = model, optimizer
            if compactly and context == 1:
                trained = compact(model, 1)
                with pytest.raises(RuntimeError, match="obstruct"):
                    trained(torch.zeros(4, 12, dtype=double))
                with pytest.raises(ValueError, match="Weight decay"):
                    trained.obstruction.follow(
                        torch.optim.SGD(trained.parameters(), lr=0.1, weight_decay=0.1)
                    )
                stepped = torch.optim.SGD(trained.parameters(), lr=0.1)
                trained.obstruction.follow(stepped)
            for _ in range(4):
                trained(torch.randn(8, 12, dtype=double)).square().sum().backward()
                stepped.step()
                stepped.zero_grad()
        if compactly:
            trained.write_back()
        results.append((learned_by(model), handle.availability))
    (whole, its_availability), (part, availability) = results
    assert_same(part, whole)
    assert_same(availability, its_availability)
    assert all((A < 1).any() for A in its_availability.values())


def test_folding_a_gate_behind_a_sum_of_layers_scales_them_all():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act, self.head = (
                nn.Linear(12, 8),
                nn.Linear(12, 8),
                nn.ReLU(),
                nn.Linear(8, 4),
            )

        def forward(self, x):
            return self.head(self.act(self.a(x) + self.b(x)))

    model, gates = attached(lambda: Sum().double())
    x = torch.randn(5, 12, dtype=double)
    for k in range(gates.contexts):
        gates.show(k)
        assert_same(compact(model, k, fold=True)(x), model(x))


class Shifted(nn.Module):
    """A convolution and a parameter of every channel, which no call makes."""

    def __init__(self):
        super().__init__()
        self.conv, self.shift, self.head = (
            nn.Conv2d(1, 8, 3, padding=1),
            nn.Parameter(torch.randn(1, 8, 1, 1)),
            nn.Linear(96, 4),
        )

    def forward(self, x):
        return self.head(torch.relu(self.conv(x.view(-1, 1, 3, 4)) + self.shift).flatten(1))


def test_a_sum_with_a_parameter_keeps_its_width():
    model = Shifted()
    gates = gateon.attach(model, density=0.5)
    assert not gates.sites["conv"].narrows
    x = torch.randn(5, 12)
    torch.testing.assert_close(gateon.compact(model, context=0)(x), model(x))


@pytest.mark.parametrize(
    "norm",
    [
        nn.InstanceNorm2d(8),
        nn.GroupNorm(2, 8, affine=False),
        nn.LayerNorm((3, 4), elementwise_affine=False),
    ],
)
def test_gains_are_not_folded_into_what_a_norm_without_parameters_undoes(norm):
    model = nn.Sequential(
        nn.Unflatten(1, (1, 3, 4)),
        nn.Conv2d(1, 8, 3, padding=1),
        norm,
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(96, 4),
    )
    gateon.attach(model, density=0.5)
    x = torch.randn(5, 12)
    before = model.eval()(x)
    try:
        folded = gateon.compact(model, context=0, fold=True)
    except ValueError as refused:
        assert "deploy the model with its gates" in str(refused)
    else:
        torch.testing.assert_close(folded(x), before)


def test_gains_are_folded_into_convolutions_in_groups():
    class Grouped(nn.Module):
        def __init__(self, groups):
            super().__init__()
            self.first, self.second = (
                nn.Conv2d(1, 8, 3, padding=1),
                nn.Conv2d(8, 16, 3, padding=1, groups=groups),
            )
            self.head = nn.Linear(192, 4)

        def forward(self, x):
            return self.head(
                self.second(nn.functional.gelu(self.first(x.view(-1, 1, 3, 4)))).flatten(1)
            )

    for groups in (2, 8):
        model = Grouped(groups).eval()
        gates = gateon.attach(model, density=0.5, sites=["first"])
        assert not gates.sites["first"].narrows
        x = torch.randn(5, 12)
        torch.testing.assert_close(gateon.compact(model, context=0, fold=True)(x), model(x))


@pytest.mark.parametrize("density", [0.2, 0.3])
def test_narrow_shortcuts_of_a_wide_resnet_are_trained_in_the_plain_layout(density):
    """In channels_last the backward pass of such a convolution corrupts memory, which a test would not survive."""
    torch.manual_seed(0)
    learner = gateon.Learner(
        wide_resnet(10, 1, 2, shape=(1, 8, 8)),
        optimizer=partial(torch.optim.SGD, lr=0.1),
        method=gateon.GateON(density=density),
    )
    x, y = torch.randn(8, 1, 8, 8), torch.randint(0, 2, (8,))
    read = []
    learner.observe(x, y, context=0)
    shortcuts = [
        m
        for m in learner._work.network.modules()
        if isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1) and m.in_channels < 8
    ]
    assert shortcuts
    for shortcut in shortcuts:
        shortcut.register_forward_hook(
            lambda module, args, output: read.append((args[0].stride(), module.weight.stride()))
        )
    losses = [learner.observe(x, y, context=0).loss for _ in range(10)]
    assert losses[-1] < losses[0]
    assert all(a[-1] == 1 and w[1:] == (1, 1, 1) for a, w in read)


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_networks_learn_the_same_in_sub_networks_and_at_full_width(first, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    fuzz = importlib.import_module("fuzz_compact")
    for number in range(first, first + 10):
        outcome = fuzz.trial(number)
        assert outcome["outcome"] not in ("differs", "crashed"), outcome
