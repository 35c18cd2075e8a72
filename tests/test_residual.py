"""One gate for all that is summed in a stage of a residual network, which is then narrowed whole."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import gateon
import reference
from gateon.anatomy.sites import find_sites
from gateon.networks import wide_resnet
from gateon.subnetwork.compact import compact
from rounding import SMOOTH_ADAM, assert_same

double = torch.float64
SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


class Perceptron(nn.Module):
    """Two blocks of Linears: three layers write to the sum, three read it."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(12, 16), nn.Linear(16, 4)
        self.into = nn.ModuleList(nn.Linear(16, 24) for _ in range(2))
        self.back = nn.ModuleList(nn.Linear(24, 16) for _ in range(2))

    def forward(self, x):
        x = torch.relu(self.first(x.flatten(1)))
        for into, back in zip(self.into, self.back, strict=True):
            x = x + back(torch.relu(into(x)))
        return self.head(x)


class Block(nn.Module):
    """The block of a ResNet as first published, with one ReLU for all, that of torchvision."""

    def __init__(self, inputs, units, stride=1):
        super().__init__()
        self.conv1, self.norm1 = (
            nn.Conv2d(inputs, units, 3, stride, padding=1),
            nn.BatchNorm2d(units),
        )
        self.conv2, self.norm2 = nn.Conv2d(units, units, 3, padding=1), nn.BatchNorm2d(units)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride > 1:
            self.down = nn.Sequential(nn.Conv2d(inputs, units, 1, stride), nn.BatchNorm2d(units))

    def forward(self, x):
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


def resnet():
    return gateon.context_norms(
        nn.Sequential(
            nn.Unflatten(1, (1, 4, 3)),
            nn.Conv2d(1, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.MaxPool2d(2, stride=1),
            Block(6, 6),
            Block(6, 6),
            Block(6, 10, stride=2),
            Block(10, 10),
            nn.AdaptiveAvgPool2d((2, 1)),
            nn.Flatten(),
            nn.Dropout(0.0),
            nn.Linear(20, 4),
        )
    ).double()


def wide():
    model = wide_resnet(16, 1, 4, shape=(1, 4, 4), first=6, affine=True).double()
    return nn.Sequential(nn.ConstantPad1d((0, 4), 0.5), nn.Unflatten(1, (1, 4, 4)), model)


def perceptron():
    return Perceptron().double()


NETWORKS = [perceptron, resnet, wide]
every_network = pytest.mark.parametrize("network", NETWORKS)


def attached(network=perceptron, contexts=3, residual="stage", **options):
    torch.manual_seed(0)
    model = network()
    return model, gateon.attach(model, contexts, density=0.5, residual=residual, **options)


def batch(n=0, samples=8):
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(samples, 12, generator=generator, dtype=double)
    return x, torch.randint(0, 4, (samples,), generator=generator)


# Which layers share a gate.


def stages(model, **options):
    sites = find_sites(model, None, residual="stage", **options)
    return [(site.owns, site.readers) for site in sites if site.at_readers]


def test_all_that_is_summed_in_a_stage_has_one_gate_in_front_of_all_that_reads_it():
    assert stages(perceptron()) == [
        (("first", "back.0", "back.1"), ("into.0", "into.1", "head")),
    ]
    assert stages(wide_resnet(16, 1, 4)) == [
        (
            (
                *(f"group{g}.0.conv2", f"group{g}.0.shortcut", f"group{g}.1.conv2"),
                *(f"group{g}.1.norm1", norm),
            ),
            (f"group{g}.1.conv1", *readers),
        )
        for g, norm, readers in (
            (1, "group2.0.norm1", ("group2.0.conv1", "group2.0.shortcut")),
            (2, "group3.0.norm1", ("group3.0.conv1", "group3.0.shortcut")),
            (3, "norm", ("head",)),
        )
    ]
    first, second = stages(resnet())
    assert first[0] == ("1", "5.conv2", "6.conv2", "2", "5.norm2", "6.norm2")
    assert first[1] == ("5.conv1", "6.conv1", "7.conv1", "7.down.0")
    assert second[0][:3] == ("7.conv2", "7.down.0", "8.conv2")
    assert second[1] == ("8.conv1", "12")


def test_without_being_asked_every_layer_has_a_gate_of_its_own():
    assert not any(site.at_readers for site in find_sites(perceptron(), None))
    _, gates = attached(residual="branch")
    assert set(gates.gates) == {"first", "into.0", "back.0", "into.1", "back.1"}


class Summed(nn.Module):
    """A stream that something keeps from being narrowed."""

    def __init__(self, passing, **modules):
        super().__init__()
        self.before, self.first = nn.Linear(5, 6), nn.Linear(6, 5)
        self.block, self.head = nn.Linear(5, 5), nn.Linear(5, 2)
        self.shift = nn.Parameter(torch.randn(5))
        for name, module in modules.items():
            setattr(self, name, module)
        self.__dict__["passing"] = passing

    def forward(self, x):
        return self.passing(self, torch.relu(self.first(torch.relu(self.before(x)))))


def tied():
    model = Summed(lambda s, x: s.head(x + s.block(x)), other=nn.Linear(5, 5))
    model.passing = lambda s, x: s.head(x + s.block(x) + s.other(x))
    model.block.weight = model.other.weight
    return model


@pytest.mark.parametrize(
    "model",
    [
        Summed(lambda s, x: s.head(s.norm(x + s.block(x))), norm=nn.LayerNorm(5)),
        Summed(lambda s, x: s.head(s.norm(x + s.block(x))), norm=nn.BatchNorm1d(5)),
        Summed(lambda s, x: s.head(x + s.block(x) + s.shift)),
        Summed(lambda s, x: s.head(x + s.block(x).roll(1, 1))),
        Summed(lambda s, x: s.head(x + s.block(s.block(x)))),
        Summed(lambda s, x: (s.head(y := x + s.block(x)), y)),
        Summed(
            lambda s, x: s.head(x + s.block(x)),
            block=nn.utils.parametrizations.weight_norm(nn.Linear(5, 5)),
        ),
        Summed(lambda s, x: s.head(x + torch.softmax(s.block(x), 1))),
        Summed(lambda s, x: s.head(x + s.block(x[:, :1].expand(-1, 5)))),
    ],
    ids=[
        *("layer norm", "shared statistics", "a parameter", "rolled", "called twice"),
        *("an output", "computed weights", "softmax", "a slice"),
    ],
)
def test_a_stream_whose_units_cannot_be_left_out_keeps_a_gate_for_every_layer(model):
    branches, stage = (find_sites(model, None, residual=r) for r in ("branch", "stage"))
    assert stage == branches


def test_tied_weights_keep_their_width():
    (site,) = (s for s in find_sites(tied(), None, residual="stage") if s.at_readers)
    assert not site.narrows


def test_streams_of_transformers_are_left_alone():
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    model = nn.Sequential(nn.Embedding(11, 8), nn.TransformerEncoder(layer, 2), nn.Linear(8, 3))
    ids = torch.randint(0, 11, (2, 4))
    assert not stages(model, example=ids)


def test_a_word_that_is_no_choice_is_refused_before_anything_is_attached():
    model = perceptron()
    with pytest.raises(ValueError, match='residual must be "branch" or "stage", got \'block\''):
        gateon.attach(model, residual="block")
    assert gateon.gates_of(model) is None


def test_the_table_of_gates_says_where_they_are():
    assert "in front of into.0 and 2 more" in str(attached()[1])


# What a closed unit is.


@pytest.mark.numeric
@every_network
def test_a_closed_unit_is_absent_from_everything_that_reads_the_stage(network):
    model, gates = attached(network)
    x, _ = batch()
    gates.switch(1)
    before = model.eval()(x)
    for name in (name for name, site in gates.sites.items() if site.at_readers):
        closed = gates.gain(1)[name] == 0
        for owner in gates.sites[name].owns:
            weight = model.get_submodule(owner).weight
            weight.data[closed] += 1.0
    assert_same(model(x), before)
    gates.switch(0)
    assert not torch.allclose(model(x), before)


def test_gates_that_are_off_leave_the_network_as_it_was_and_detaching_gives_it_back():
    torch.manual_seed(0)
    plain = resnet()
    model = copy.deepcopy(plain)
    gates = gateon.attach(model, density=0.5, residual="stage")
    x, _ = batch()
    gates.off()
    assert torch.equal(model(x), plain(x))
    gates.detach()
    assert [*model.state_dict()] == [*plain.state_dict()]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


# Relevance: the sum over all readers, before it is squared.


def observed(model, gates, x, y, measure="gradient"):
    """The relevance that the gate of a stage has found."""
    site = next(site for site in gates.sites.values() if site.at_readers)
    tap = torch.zeros(site.units, dtype=double, requires_grad=True)
    gates.taps[site.name].observe(measure, tap)
    F.cross_entropy(model(x), y, reduction="sum").backward()
    return site, tap.grad


def read_by(model, site):
    """What every reader of a site reads, filled in by the next forward pass."""
    seen = {}

    def see(name, module, args):
        args[0].retain_grad()
        seen[name] = args[0]

    for name in site.readers:
        model.get_submodule(name).register_forward_pre_hook(partial(see, name))
    return seen


@pytest.mark.numeric
@every_network
@pytest.mark.parametrize("off", [False, True])
def test_relevance_is_that_of_the_literal_twin(network, off):
    model, gates = attached(network)
    site = next(site for site in gates.sites.values() if site.at_readers)
    if off:
        gates.off()
    seen, (x, y) = read_by(model, site), batch()
    _, mu = observed(model, gates, x, y)
    xs = [seen[name].detach() for name in site.readers]
    gradients = [seen[name].grad for name in site.readers]
    shaped = [[t.reshape(len(x), site.units, -1) for t in tensors] for tensors in (gradients, xs)]
    assert_same(mu, len(x) * reference.stage_relevance(*shaped))
    apart = sum(reference.stage_relevance([g], [h]) for g, h in zip(*shaped, strict=True))
    assert not torch.allclose(mu, len(x) * apart, rtol=0.01), "squares are not summed"


@pytest.mark.numeric
def test_relevance_is_the_first_order_effect_of_removing_a_unit():
    model, gates = attached()
    x, y = batch(samples=1)
    site, mu = observed(model, gates, x, y)
    gate, step = gates.gates[site.name], 1e-6
    v, losses = gate.weight.data[0].clone(), []
    for i in range(site.units):
        for sign in (1, -1):
            gain = torch.tanh(v[i].clamp_min(0)) * (1 + sign * step)
            gate.weight.data[0, i] = torch.atanh(gain) if gain > 0 else v[i]
            losses.append(F.cross_entropy(model(x), y, reduction="sum").item())
            gate.weight.data[0] = v
    above, below = torch.tensor(losses, dtype=double).view(-1, 2).unbind(1)
    slopes = (above - below) / (2 * step)
    torch.testing.assert_close(mu, slopes**2, rtol=1e-4, atol=1e-8)


@pytest.mark.numeric
def test_gradients_are_those_of_gains_written_out():
    model, gates = attached()
    gates.switch(2)
    x, y = batch()
    observed(model, gates, x, y)
    gain = {n: torch.tanh(g.weight[2].relu()) for n, g in gates.gates.items()}
    h = torch.relu(model.first(x))
    for n in range(2):
        inside = gain[f"into.{n}"] * torch.relu(
            F.linear(gain["first"] * h, model.into[n].weight, model.into[n].bias)
        )
        h = h + F.linear(inside, model.back[n].weight, model.back[n].bias)
    logits = F.linear(gain["first"] * h, model.head.weight, model.head.bias)
    found = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    F.cross_entropy(logits, y, reduction="sum").backward()
    assert_same(found, {name: p.grad for name, p in model.named_parameters()})


@pytest.mark.numeric
def test_a_batch_in_several_contexts_has_the_relevance_of_each_of_its_samples():
    model, gates = attached(resnet)
    model.eval()
    (x, y), rows = batch(samples=6), torch.tensor([0, 2, 1, 1, 0, 2])
    gates.switch(rows)
    _, mixed = observed(model, gates, x, y)
    alone = torch.zeros_like(mixed)
    for k in range(3):
        gates.switch(k)
        alone += observed(model, gates, x[rows == k], y[rows == k])[1]
    assert_same(mixed, alone)
    gates.switch(torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="2 contexts were given for a batch of 6"):
        model(x)


@pytest.mark.numeric
@pytest.mark.parametrize("measure", ["activity", lambda g, x: (g * x).sum(-1).square().sum(0)])
def test_other_measures_add_up_over_readers(measure):
    model, gates = attached(resnet)
    site = next(site for site in gates.sites.values() if site.at_readers)
    seen, (x, y) = read_by(model, site), batch()
    _, mu = observed(model, gates, x, y, measure)
    expected = torch.zeros_like(mu)
    for h in seen.values():
        values, slopes = (t.reshape(len(x), site.units, -1) for t in (h.detach(), h.grad))
        of_reader = reference.activity_relevance(values) if measure == "activity" else None
        expected += len(x) * of_reader if measure == "activity" else measure(slopes, values)
    assert_same(mu, expected)


@pytest.mark.numeric
def test_large_activities_are_processed_in_pieces():
    torch.manual_seed(0)
    model = wide_resnet(16, 1, 4).double()
    gates = gateon.attach(model, density=0.5, residual="stage")
    x, y = torch.randn(20, 3, 32, 32, dtype=double), torch.randint(0, 4, (20,))
    model.eval()
    site, mu = observed(model, gates, x, y)
    assert 20 * site.units * 32 * 32 > 1 << 18
    alone = sum(observed(model, gates, x[n : n + 1], y[n : n + 1])[1] for n in range(20))
    assert_same(mu, alone)


# Sub-networks.


@pytest.mark.numeric
@every_network
@pytest.mark.parametrize("training", [False, True])
def test_the_stage_is_narrowed_whole_and_computes_the_same(network, training):
    model, gates = attached(network)
    x, _ = batch()
    for k in range(gates.contexts):
        small = compact(model, k)
        gates.switch(k)
        assert_same(small.train(training)(x), model.train(training)(x))
        sizes = [sum(p.numel() for p in m.parameters()) for m in (small, model)]
        assert sizes[0] < 0.4 * sizes[1]


@pytest.mark.numeric
@every_network
def test_folded_for_deployment_its_readers_take_the_gains(network):
    model, gates = attached(network)
    x, _ = batch()
    for _ in range(3):
        model.train()(torch.randn(8, 12, dtype=double))
    for k in range(gates.contexts):
        gates.show(k)
        folded = compact(model, k, fold=True)
        assert_same(folded(x), model.eval()(x))
    own = {type(m).__module__.split(".")[0] for m in folded.modules()}
    assert own <= {"torch", "test_residual", "gateon"} and gateon.gates_of(folded) is None


def learned(network, method, optimizer, compactly, contexts=(0, 1, 0, 2), steps=4):
    torch.manual_seed(0)
    learner = gateon.Learner(
        network(), optimizer=optimizer, method=copy.deepcopy(method), compact=compactly
    )
    for n, context in enumerate(contexts):
        for s in range(steps):
            learner.observe(*batch(100 * n + s, samples=16), context=context)
    assert learner.is_compact == compactly
    return learner


def learned_by(learner):
    """All but statistics: those of a unit that is closed in a context are never used there."""
    return {n: t for n, t in learner.model.state_dict().items() if "running" not in n}


METHOD = partial(
    gateon.GateON, residual="stage", epsilon=0.5, rate=0.05, density=0.5, width=1.0, floor=0.01
)


OPTIONS = [
    {"per": "unit"},
    {"per": "parameter", "epsilon": 0.0, "prefer": 3.0, "inherit": True, "rescale": True},
    {"relevance": "next-layer-gated"},
    {"per": "unit", "apply": "step", "prefer": 3.0, "inherit": True},
    {"per": "parameter"},
    {"relevance": "activity"},
    {"relevance": "next-layer"},
    {"before_norm": True, "gate_penalty": 0.1, "obstruct_head": True},
]


@pytest.mark.numeric
@pytest.mark.parametrize(
    ("network", "options"),
    [
        *((perceptron, options) for options in OPTIONS),
        *((network, options) for network in (resnet, wide) for options in OPTIONS[:2]),
        (resnet, OPTIONS[2]),
    ],
    ids=lambda one: ", ".join(map(str, one.values())) if isinstance(one, dict) else one.__name__,
)
def test_training_compactly_ends_where_training_at_full_width_does(network, options):
    method = METHOD(**options)
    optimizer = SMOOTH_ADAM if network is perceptron else SGD
    whole, part = (learned(network, method, optimizer, compactly) for compactly in (False, True))
    assert_same(learned_by(part), learned_by(whole))
    ours, theirs = whole.method.handle.state_dict(), part.method.handle.state_dict()
    assert_same(theirs, ours)
    assert any((A < 0.9).any() for name, A in ours.items() if name.endswith("applied"))
    x, _ = batch(1)
    for context in range(3):
        assert_same(part.predict(x, context), whole.predict(x, context))


@pytest.mark.parametrize("compactly", [False, True])
def test_it_goes_on_from_a_state_as_if_never_stopped(compactly):
    method = METHOD(per="unit", prefer=3.0, inherit=True)
    learner = learned(resnet, method, SMOOTH_ADAM, compactly, contexts=(0, 1))
    other = gateon.Learner(resnet(), optimizer=SMOOTH_ADAM, method=method, compact=compactly)
    other.load_state_dict(learner.state_dict())
    for one in (learner, other):
        for s, context in enumerate((1, 1, 2, 2, 0)):
            one.observe(*batch(50 + s), context=context)
    a, b = learner.model.state_dict(), other.model.state_dict()
    assert a.keys() == b.keys() and all(torch.equal(t, b[name]) for name, t in a.items())
    first, second = (one.method.handle.state_dict() for one in (learner, other))
    assert all(torch.equal(A, second[name]) for name, A in first.items())


@pytest.mark.parametrize("per", ["unit", "parameter"])
def test_room_in_a_stage_counts_all_layers_that_make_its_units(per):
    model, gates = attached()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, per=per, rate=0.2)
    x, y = batch()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    room = handle.room(gates.sites["first"])
    if per == "unit":
        expected = handle.availability["first"]
    else:
        rows = [handle.availability[f"{n}.weight"] for n in ("first", "back.0", "back.1")]
        expected = torch.cat(rows, 1).mean(1)
    torch.testing.assert_close(room, expected)
    assert (room < 1).any()


def test_biases_that_norms_subtract_again_stay_where_they_are():
    """However many layers write to the stage: rounding alone would move them."""
    model, _, handle = made(network=resnet)
    frozen = {n for n, p in model.named_parameters() if n.endswith("bias") and held(handle, p)}
    convolutions = {n for n, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    assert frozen == {f"{name}.bias" for name in convolutions}
    model, _, handle = made()
    assert not any(held(handle, p) for p in model.parameters())


def held(handle, parameter):
    scale = handle.scale_of(parameter)
    return scale is not None and not scale.any()


# In loops of one's own.


def made(**options):
    model, gates = attached(options.pop("network", perceptron))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    defaults = {"rate": 0.1, "epsilon": 0.3, "apply": "step"}
    return model, optimizer, gateon.obstruct(optimizer, gates, **defaults | options)


def everything(model, handle):
    return {n: p.detach().clone() for n, p in model.named_parameters()} | handle.state_dict()


@pytest.mark.numeric
def test_micro_batches_equal_one_batch():
    results = []
    for parts in (1, 3):
        model, optimizer, handle = made()
        for n in range(2):
            x, y = batch(n, samples=9)
            for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
                (F.cross_entropy(model(a), b, reduction="sum") / 9).backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append(everything(model, handle))
    assert_same(*results)


def test_what_a_skipped_step_has_seen_is_forgotten():
    results = []
    for skips in (False, True):
        model, optimizer, handle = made()
        if skips:
            x, y = batch(7)
            (100 * F.cross_entropy(model(x), y)).backward()
            optimizer.zero_grad()
        x, y = batch()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        results.append(everything(model, handle))
    assert all(torch.equal(a, results[1][name]) for name, a in results[0].items())


@pytest.mark.numeric
def test_blocks_may_be_computed_again_in_the_backward_pass():
    results = []
    for again in (False, True):
        model, optimizer, handle = made(network=resnet)
        if again:
            for name in ("5", "6"):
                block = model.get_submodule(name)
                block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        x, y = batch()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        results.append(everything(model, handle))
    assert_same(*results)


@pytest.mark.numeric
def test_a_compiled_model_learns_as_the_eager_one_and_switching_does_not_recompile():
    torch._dynamo.reset()
    results, graphs = [], []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    for compiled in (False, True):
        model, optimizer, handle = made()
        runs = torch.compile(model, backend=counting, fullgraph=True) if compiled else model
        for n in range(4):
            handle.gates.switch(n % 3)
            x, y = batch(n)
            F.cross_entropy(runs(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append(everything(model, handle))
    torch._dynamo.reset()
    assert_same(*results)
    assert len(graphs) == 1


def test_a_copy_made_between_passes_learns_on_its_own():
    model, optimizer, handle = made()
    x, y = batch()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    other = copy.deepcopy(model)
    before = everything(model, handle)
    gates = gateon.gates_of(other)
    copied = torch.optim.SGD(other.parameters(), lr=0.1)
    gateon.obstruct(copied, gates, rate=0.1)
    other(x).sum().backward()
    copied.step()
    assert all(torch.equal(t, before[n]) for n, t in everything(model, handle).items())
    gate = gates.gates["first"]
    assert other.head.context_gate_in_front.gate[0] is gate


def test_contexts_are_added_and_rows_kept_elsewhere():
    results = []
    for where in ("device", "cpu"):
        model, gates = attached(contexts=1)
        gates.keep_rows(where)
        for k in range(3):
            if k:
                gates.add_context()
                gates.switch(k)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            handle = gateon.obstruct(optimizer, gates, rate=0.1)
            for n in range(2):
                x, y = batch(n)
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
            handle.remove()
        results.append(model.state_dict())
    assert all(torch.equal(t, results[1][name]) for name, t in results[0].items())
    assert results[0]["into.0.context_gate_in_front.weight"].shape == (3, 16)


def test_half_precision_learns():
    torch.manual_seed(0)
    model = Perceptron().to(torch.bfloat16)
    gates = gateon.attach(model, density=0.5, residual="stage")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, rate=0.1)
    x, y = batch()
    out = model(x.bfloat16())
    F.cross_entropy(out.float(), y).backward()
    optimizer.step()
    assert out.dtype == torch.bfloat16
    A = handle.availability["first"]
    assert A.dtype == torch.float32 and (A < 1).any()
