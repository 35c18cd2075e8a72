"""The convolutional networks of the paper: their shapes, their sites, and GateON per channel against literal twins."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gateon
import reference
from gateon.networks import cnn, mlp, wide_resnet
from gateon.subnetwork.compact import compact
from rounding import assert_same

pytestmark = pytest.mark.numeric

double = torch.float64
SGD = partial(torch.optim.SGD, lr=0.02, momentum=0.9)


def small_cnn(**options):
    return cnn((1, 12, 12), (6, 8), (10,), 3, pool=2, **options)


def small_wrn(**options):
    return wide_resnet(10, 1, 3, shape=(3, 8, 8), first=8, **options)


# Shapes


def test_the_paper_s_networks_have_its_sizes():
    with torch.device("meta"):
        model, wide = cnn((1, 28, 28)), wide_resnet(classes=5)
    assert [m.weight.shape for m in model if isinstance(m, nn.Conv2d)] == [
        (256, 1, 3, 3),
        (512, 256, 3, 3),
    ]
    assert [m.weight.shape for m in model if isinstance(m, nn.Linear)] == [
        (5000, 512 * 36),
        (5000, 5000),
        (10, 5000),
    ]
    convolutions = [m for m in wide.modules() if isinstance(m, nn.Conv2d)]
    assert (
        sum(m.kernel_size == (3, 3) for m in convolutions) == 25
        and sum(m.kernel_size == (1, 1) for m in convolutions) == 3
    )
    assert [wide.first.out_channels, *(wide[n][-1].conv2.out_channels for n in (1, 2, 3))] == [
        128,
        160,
        320,
        640,
    ]


def test_a_wide_resnet_as_published_has_the_published_number_of_parameters():
    with torch.device("meta"):
        model = wide_resnet(28, 10, 10, first=16, affine=True)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == 36.5


@pytest.mark.parametrize("depth", [10, 16])
@pytest.mark.parametrize("norm", ["context", "batch", "none"])
def test_a_block_is_its_equation(depth, norm):
    torch.manual_seed(0)
    model = wide_resnet(depth, 1, 3, shape=(3, 8, 8), first=8, norm=norm).double().train()
    x = torch.randn(4, 3, 8, 8, dtype=double)

    def normal(x):
        deviation = x.var((0, 2, 3), unbiased=False, keepdim=True).add(1e-5).sqrt()
        return x if norm == "none" else (x - x.mean((0, 2, 3), keepdim=True)) / deviation

    y = F.conv2d(x, model.first.weight, model.first.bias, padding=1)
    for group in (model.group1, model.group2, model.group3):
        for n, block in enumerate(group):
            a = F.relu(normal(y))
            stride = 2 if n == 0 and group is not model.group1 else 1
            inside = F.conv2d(a, block.conv1.weight, block.conv1.bias, stride, 1)
            inside = F.conv2d(
                F.relu(normal(inside)), block.conv2.weight, block.conv2.bias, padding=1
            )
            y = inside + (
                F.conv2d(a, block.shortcut.weight, block.shortcut.bias, stride) if n == 0 else y
            )
    expected = F.linear(F.relu(normal(y)).mean((2, 3)), model.head.weight, model.head.bias)
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            partial(cnn, (784,)),
            r"takes images \(channels, height, width\), got inputs of shape \(784,\): use an mlp",
        ),
        (
            partial(cnn, (1, 7, 28)),
            "Images must be at least 8 x 8 for this network, got 7 x 28",
        ),
        (partial(cnn, (1, 28, 28), norm="layer"), "norm must be"),
        (partial(wide_resnet, 17), "depth of a Wide ResNet must be 10, 16, 22, 28 .* got 17"),
        (partial(wide_resnet, 16, 0), "widen and first must be at least 1, got 0"),
        (partial(wide_resnet, 16, 2, shape=(3, 30, 32)), "must be multiples of 4, .* got 30 x 32"),
        (partial(wide_resnet, 16, 2, shape=(64,)), "takes images"),
        (partial(mlp, 4, norm="layer"), "norm must be"),
    ],
)
def test_what_a_network_cannot_take_is_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


# Sites


def test_every_convolution_is_gated_and_every_parameter_has_an_owner():
    for model, convolutions in (
        (small_cnn(affine=True), 2),
        (wide_resnet(16, 1, 3, shape=(3, 8, 8), affine=True), 16),
    ):
        gates = gateon.attach(model)
        gated = [s for s in gates.sites.values() if s.gated]
        assert (
            sum(isinstance(model.get_submodule(name), nn.Conv2d) for s in gated for name in s.owns)
            == convolutions
        )
        owned = {
            f"{o}.{p}"
            for s in gates.sites.values()
            for o in s.owns
            for p, _ in model.get_submodule(o).named_parameters()
        }
        assert owned >= {name for name, _ in model.named_parameters() if "context_gate" not in name}


def test_rates_go_by_the_names_of_sites():
    method = gateon.GateON(rate={"first": 0.04, "*": 0.004})
    gateon.Learner(small_wrn(), optimizer=SGD, method=method)
    rates = {ledger.site.name: ledger.rule.fall for ledger in method.handle.ledgers()}
    assert rates.pop("first") == 0.04 and len(rates) > 5 and set(rates.values()) == {0.004}


# Relevance per channel


def grouped():
    layers = [nn.Conv2d(4, 8, 3, groups=2), nn.Tanh(), nn.Conv2d(8, 8, 3, groups=8), nn.Tanh()]
    return nn.Sequential(
        *layers, nn.ConvTranspose2d(8, 6, 2, groups=2), nn.Tanh(), nn.Flatten(), nn.Linear(150, 3)
    )


NETWORKS = {
    "cnn": (small_cnn, (1, 12, 12)),
    "wide-resnet": (small_wrn, (3, 8, 8)),
    "grouped, depthwise, transposed": (grouped, (4, 8, 8)),
}


@pytest.mark.parametrize("measure", ["gradient", "activity"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_availability_of_channels_follows_their_literal_relevance(name, measure):
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    model = make().double()
    gates = gateon.attach(model, density=0.7, width=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    handle = gateon.obstruct(
        optimizer, gates, rate=0.2, epsilon=0.3, relevance=measure, apply="step"
    )
    seen = {}
    for site, gate in gates.gates.items():
        gate.register_forward_hook(
            lambda m, a, out, site=site: (out.retain_grad(), seen.__setitem__(site, out))[0]
        )
    F.cross_entropy(
        model(torch.randn(5, *shape, dtype=double)), torch.randint(0, 3, (5,))
    ).backward()
    optimizer.step()
    assert len(seen) == len(gates.gates) >= 3
    for site, out in seen.items():
        x, gradient = (t.reshape(*t.shape[:2], -1) for t in (out.detach(), out.grad))
        mu = (
            reference.unit_relevance(gradient, x)
            if measure == "gradient"
            else reference.activity_relevance(x)
        )
        literal = reference.availability(
            torch.ones(len(mu), dtype=double), reference.normalise(mu), 0.2, 0.3
        )
        assert_same(handle.availability[site], literal)
        assert (literal < 1).any()


def test_the_availability_of_kernel_entries_follows_their_literal_relevance():
    torch.manual_seed(0)
    model = small_cnn(norm="none").double()
    gates = gateon.attach(model, density=0.7, width=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    handle = gateon.obstruct(optimizer, gates, per="parameter", rate=0.2, apply="step")
    F.cross_entropy(
        model(torch.randn(5, 1, 12, 12, dtype=double)), torch.randint(0, 3, (5,))
    ).backward()
    weight, bias = model.conv2.weight, model.conv2.bias
    mu = torch.cat(
        [reference.parameter_relevance(p.grad, p.detach()).flatten() for p in (weight, bias)]
    )
    literal = reference.availability(torch.ones_like(mu), reference.normalise(mu), 0.2, 0.0)
    optimizer.step()
    found = torch.cat(
        [handle.availability[f"conv2.{name}"].flatten() for name in ("weight", "bias")]
    )
    assert_same(found, literal)


# Compact execution


def learned(make, shape, method, compactly, contexts=(0, 1, 0), steps=3):
    torch.manual_seed(0)
    learner = gateon.Learner(
        make().double(), optimizer=SGD, method=copy.deepcopy(method), compact=compactly
    )
    torch.manual_seed(1)
    for context in contexts:
        for _ in range(steps):
            learner.observe(
                torch.randn(6, *shape, dtype=double), torch.randint(0, 3, (6,)), context=context
            )
    assert learner.is_compact == compactly
    return learner


def assert_learned_alike(whole, part):
    # Statistics of a unit that is closed in a context are never used there.
    theirs, ours = (
        {k: v for k, v in m.model.state_dict().items() if "running" not in k} for m in (whole, part)
    )
    assert_same(ours, theirs)
    assert_same(part.method.handle.state_dict(), whole.method.handle.state_dict())


@pytest.mark.parametrize("per", ["unit", "parameter"])
@pytest.mark.parametrize("penalty", [0.0, 0.5])
@pytest.mark.parametrize("make", [small_cnn, small_wrn])
def test_training_compactly_ends_where_training_at_full_width_does(make, per, penalty):
    # Biases before norms have gradients of rounding noise, which must not decide: SGD takes them as
    # they are.
    shape = (1, 12, 12) if make is small_cnn else (3, 8, 8)
    method = gateon.GateON(
        per=per, epsilon=0.3, rate=0.05, density=0.5, width=1.0, gate_penalty=penalty
    )
    whole, part = (
        learned(partial(make, affine=make is small_wrn), shape, method, compactly)
        for compactly in (False, True)
    )
    assert_learned_alike(whole, part)
    assert any((A < 0.99).any() for A in whole.method.handle.availability.values())


def test_inside_each_block_and_before_the_first_a_wide_resnet_is_narrow():
    model = wide_resnet(16, 1, 3, shape=(3, 8, 8), first=8)
    gateon.attach(model, density=0.5)
    narrow = compact(model, 0)
    assert narrow.first.weight.shape == (4, 3, 3, 3)
    for group, units in ((narrow.group1, 16), (narrow.group2, 32), (narrow.group3, 64)):
        for block in group:
            assert (
                block.conv1.out_channels
                == block.conv2.in_channels
                == block.norm2.num_features
                == units // 2
            )
            assert block.conv2.out_channels == units, "the sum keeps its width"


def test_with_one_block_a_group_the_sums_are_narrow_too():
    model = wide_resnet(10, 1, 3, shape=(3, 8, 8), first=8)
    gates = gateon.attach(model, contexts=2, density=0.5)
    narrow = compact(model, 1)
    for group, inputs, units in (
        (narrow.group1, 4, 8),
        (narrow.group2, 8, 16),
        (narrow.group3, 16, 32),
    ):
        assert group[0].conv1.weight.shape == (units, inputs, 3, 3) and group[
            0
        ].conv2.weight.shape == (units, units, 3, 3)
        assert group[0].shortcut.weight.shape == (units, inputs, 1, 1)
    assert narrow.norm.num_features == narrow.head.in_features == 32
    gates.switch(1)
    x = torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(narrow.eval()(x), model.eval()(x))


def test_where_the_first_convolution_is_itself_a_summand_it_keeps_its_width():
    model = wide_resnet(10, 1, 3, shape=(3, 8, 8), first=16)
    gates = gateon.attach(model, contexts=2, density=0.5)
    narrow = compact(model, 1)
    assert narrow.first.out_channels == 16 and narrow.group1[0].conv1.out_channels == 8
    gates.switch(1)
    x = torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(narrow.eval()(x), model.eval()(x))


class Branches(nn.Module):
    """Two summed convolutions with one gate: the units it closes are left out of both."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.relu, self.flatten = (
            nn.Conv2d(4, 8, 3, padding=1),
            nn.Conv2d(4, 8, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.inside, self.head = nn.Conv2d(8, 6, 3, padding=1), nn.Linear(6 * 64, 3)

    def forward(self, x):
        return self.head(self.flatten(torch.relu(self.inside(self.relu(self.a(x) + self.b(x))))))


def block_with_groups():
    """Six of eight channels open: they could not be divided among four groups."""
    layers = [
        nn.Conv2d(4, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=4),
        nn.ReLU(),
    ]
    return nn.Sequential(
        *layers, nn.Conv2d(8, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 64, 3)
    )


def depthwise():
    layers = [
        nn.Conv2d(4, 8, 1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.ReLU(),
        nn.Conv2d(8, 6, 1),
        nn.ReLU(),
    ]
    return nn.Sequential(
        *layers, nn.AvgPool2d(2), nn.Conv2d(6, 6, 1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 3)
    )


def transposed():
    layers = [
        nn.Conv2d(4, 8, 3),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 6, 3),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 6, 1, groups=2),
    ]
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(6 * 64, 3))


CHAINS = {
    "sum of branches": Branches,
    "groups": block_with_groups,
    "depthwise": depthwise,
    "transposed": transposed,
}


@pytest.mark.parametrize("density", [0.75, 0.3])
@pytest.mark.parametrize("name", CHAINS)
def test_groups_keep_their_width_and_the_rest_is_exact(name, density):
    make = CHAINS[name]
    torch.manual_seed(2)
    model = make()
    gates = gateon.attach(model, contexts=2, density=density)
    narrow = compact(model, 1)
    gates.switch(1)
    x = torch.randn(3, 4, 8, 8)
    torch.testing.assert_close(narrow(x), model(x))
    for full, cut in zip(model.modules(), narrow.modules(), strict=True):
        if isinstance(full, nn.Conv2d) and full.groups > 1:
            assert (full.in_channels, full.out_channels) == (cut.in_channels, cut.out_channels)
    if name == "sum of branches":
        assert narrow.a.out_channels == narrow.b.out_channels == round(8 * density)
    assert sum(p.numel() for p in narrow.parameters()) < sum(p.numel() for p in model.parameters())
    method = gateon.GateON(rate=0.05, epsilon=0.3, density=density, width=1.0)
    assert_learned_alike(
        *(learned(make, (4, 8, 8), method, compactly) for compactly in (False, True))
    )


# The regulariser


def test_the_gate_penalty_is_the_mean_of_open_weights_summed_over_layers():
    torch.manual_seed(0)
    method = gateon.GateON(density=0.5, width=1.0, gate_penalty=0.2)
    model = small_cnn()
    method.prepare(model)
    method.gates.add_context()
    method.gates.switch(1)
    literal = 0.0
    for gate in method.gates.gates.values():
        v = gate.weight[1].tolist()
        literal += 0.2 * sum(max(value, 0.0) for value in v) / len(v)
    penalty = method.penalty(model, None)
    assert penalty.item() == pytest.approx(literal, rel=1e-5) and literal > 0.05
    narrow = compact(model, 1)
    assert method.penalty(narrow, None).item() == pytest.approx(literal, rel=1e-5), (
        "closed gates count in the mean of the sub-network too"
    )
    penalty.backward()
    for gate in method.gates.gates.values():
        assert (
            torch.equal(gate.weight.grad[1] != 0, gate.weight[1] > 0)
            and not gate.weight.grad[0].any()
        )


def test_it_closes_gates_which_stay_closed():
    torch.manual_seed(0)
    opened = {}
    for strength in (0.0, 20.0):
        method = gateon.GateON(density=0.5, gate_penalty=strength)
        learner = gateon.Learner(small_cnn(), optimizer=SGD, method=method)
        before = None
        for _ in range(15):
            learner.observe(torch.randn(6, 1, 12, 12), torch.randint(0, 3, (6,)), context=0)
            now = gateon.gates_of(learner.model).gain(0)["hidden1"] > 0
            assert before is None or not (now & ~before).any()
            before = now
        opened[strength] = int(before.sum())
    assert opened[20.0] < opened[0.0] == 5


def test_a_negative_penalty_is_refused_and_none_is_asked_for_by_default():
    model = small_cnn()
    with pytest.raises(ValueError, match="gate_penalty must be at least 0"):
        gateon.GateON(gate_penalty=-1.0).prepare(model)
    assert gateon.gates_of(model) is None
    method = gateon.GateON()
    method.prepare(model)
    assert method.penalty(model, None) is None


def test_a_sub_network_keeps_the_layout_of_its_weights():
    model = small_wrn()
    gateon.attach(model, density=0.5)
    narrow = compact(model, 0)
    for block in (model.group2[0], narrow.group2[0]):
        weight = block.conv1.weight
        assert (
            weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
        )
