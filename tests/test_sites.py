import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gateon
from gate_models import Net
from gateon.anatomy.kinds import (
    is_activation,
    is_layer,
    is_norm,
    rescales,
    spread,
    unit_dim,
    units_of,
)
from gateon.anatomy.norm import ContextNorm
from gateon.anatomy.sites import find_sites, matching


def places(model, **options):
    """{site: where its gate sits}, of gated sites."""
    sites = find_sites(model, options.pop("sites", None), options.pop("example", None), **options)
    return {
        s.name: ("in front of " if s.in_front else "behind ") + s.place for s in sites if s.gated
    }


def mlp():
    layers = {
        "fc1": nn.Linear(4, 6),
        "act1": nn.ReLU(),
        "fc2": nn.Linear(6, 6),
        "norm": nn.LayerNorm(6),
        "act2": nn.Tanh(),
    }
    return Net(
        lambda s, x: s.out(s.act2(s.norm(s.fc2(s.act1(s.fc1(x)))))), **layers, out=nn.Linear(6, 2)
    )


# By pattern and by mapping.


def test_patterns_choose_layers_by_their_own_name_their_place_or_what_they_own():
    assert places(mlp()) == {"fc1": "behind act1", "fc2": "behind act2"}
    assert places(mlp(), sites="fc1") == {"fc1": "behind act1"}
    assert places(mlp(), sites="act2") == {"fc2": "behind act2"}
    assert places(mlp(), sites="norm") == {"fc2": "behind act2"}
    assert places(mlp(), sites=["fc2", "fc*"]) == {"fc1": "behind act1", "fc2": "behind act2"}


def test_a_pattern_may_name_the_head():
    (site,) = find_sites(mlp(), "out")
    assert site.gated
    assert not site.head
    assert site.place == "out"
    assert places(mlp(), head=True) == {
        "fc1": "behind act1",
        "fc2": "behind act2",
        "out": "behind out",
    }


def test_a_mapping_says_where_gates_go_and_what_they_own():
    sites = find_sites(mlp(), {"act1": "fc1", "act2": ["fc2", "norm"]})
    assert [(s.name, s.place, s.owns, s.units, s.dim) for s in sites] == [
        ("act1", "act1", ("fc1",), 6, -1),
        ("act2", "act2", ("fc2", "norm"), 6, -1),
    ]
    model = mlp()
    gates = gateon.attach(model, sites={"act2": ["fc*", "norm"]}, density=0.5)
    assert gates.sites["act2"].owns == ("fc1", "fc2", "norm")
    h = F.relu(model.fc1(torch.ones(1, 4)))
    expected = model.out(gates.gain()["act2"] * torch.tanh(F.layer_norm(model.fc2(h), (6,))))
    torch.testing.assert_close(model(torch.ones(1, 4)), expected)


def test_a_mapping_takes_units_and_dimension_from_the_same_layer():
    model = Net(
        lambda s, x: s.fc(s.conv(x).flatten(1)), conv=nn.Conv2d(3, 4, 3), fc=nn.Linear(36, 5)
    )
    (site,) = find_sites(model, {"fc": ["conv", "fc"]})
    assert (site.units, site.dim) == (5, -1)
    (site,) = find_sites(model, {"conv": ["fc", "conv"]})
    assert (site.units, site.dim) == (4, -3)
    model(torch.ones(2, 3, 5, 5))


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_a_named_site_without_units_is_refused():
    with pytest.raises(ValueError, match="Site '0' owns no layer with units"):
        find_sites(nn.Sequential(nn.Linear(3, 0), nn.Linear(0, 2)), {"0": "0"})


def test_a_pattern_that_matches_nothing_shows_the_nearest_names():
    with pytest.raises(
        ValueError, match=r"No layer matches 'encodr': use a pattern for names such as 'encoder'"
    ):
        matching("encodr", ["decoder", "encoder", "head"], "layer")
    with pytest.raises(ValueError, match="'decoder', 'head'"):
        matching("zzz", ["decoder", "head"], "layer")


# Where gates sit.


def test_a_gate_sits_behind_norm_and_activation_in_either_order():
    for between in (
        [nn.BatchNorm1d(6), nn.ReLU()],
        [nn.ReLU(), nn.BatchNorm1d(6)],
        [nn.Dropout(0.1), nn.LayerNorm(6), nn.GELU()],
    ):
        model = nn.Sequential(nn.Linear(4, 6), *between, nn.Linear(6, 2))
        assert places(model) == {"0": f"behind {len(between)}"}


@pytest.mark.parametrize(
    ("behind", "centred"),
    [
        ((ContextNorm(6), nn.ReLU()), True),
        ((ContextNorm(6),), True),
        ((nn.ReLU(), ContextNorm(6)), False),
        ((nn.Dropout(0.5), ContextNorm(6), nn.ReLU()), False),  # what it leaves out has no bias
        ((nn.BatchNorm1d(6), nn.ReLU()), False),  # its stored mean moves with the bias
        ((nn.LayerNorm(6), nn.ReLU()), False),
        ((nn.ReLU(),), False),
    ],
)
def test_a_layer_is_centred_only_by_a_context_norm_right_behind_it(behind, centred):
    first, *_, head = find_sites(
        nn.Sequential(nn.Linear(4, 6), *behind, nn.Linear(6, 2)), None, torch.randn(3, 4)
    )
    assert (first.name, first.centred, head.centred) == ("0", centred, False)


def test_a_layer_that_also_feeds_something_else_is_not_centred():
    layers = {"fc": nn.Linear(4, 4), "norm": ContextNorm(4), "out": nn.Linear(4, 2)}
    twice = Net(lambda s, x: s.out(torch.relu(s.norm(s.fc(torch.relu(s.fc(x)))))), **layers)
    beside = Net(lambda s, x: s.out(torch.relu(s.norm(y := s.fc(x)) + y)), **layers)
    for model in (twice, beside):
        assert not any(site.centred for site in find_sites(model, None, torch.randn(3, 4)))


def test_pooling_between_a_convolution_and_its_norm_does_not_leave_the_gate_before_the_norm():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 2),
    )
    assert places(model) == {"0": "behind 3"}
    model = Net(
        lambda s, x: s.out(F.relu(s.norm(F.avg_pool2d(s.conv(x), 2))).flatten(1)),
        conv=nn.Conv2d(3, 4, 3),
        norm=nn.BatchNorm2d(4),
        out=nn.Linear(16, 2),
    )
    assert places(model) == {"conv": "behind norm"}


def test_pooling_behind_a_linear_layer_pools_units_and_ends_its_site():
    model = nn.Sequential(nn.Linear(4, 6), nn.MaxPool1d(2), nn.ReLU(), nn.Linear(3, 2))
    assert places(model) == {"0": "behind 0"}


@pytest.mark.parametrize(
    "activation",
    [F.relu, F.leaky_relu, torch.relu, lambda x: x.relu(), lambda x: F.relu(x, inplace=True)],
)
def test_before_a_homogeneous_function_a_gate_is_as_good_as_behind_it(activation):
    model = Net(lambda s, x: s.out(activation(s.fc(x))), fc=nn.Linear(4, 6), out=nn.Linear(6, 2))
    for example in (None, torch.ones(1, 4)):
        assert places(model, example=example) == {"fc": "behind fc"}


@pytest.mark.parametrize("activation", [F.gelu, torch.tanh, torch.sigmoid, F.silu, F.softplus])
def test_behind_another_function_the_gate_goes_in_front_of_the_only_reader(activation):
    model = Net(
        lambda s, x: s.out(F.dropout(activation(s.fc(x)), 0.1, s.training)),
        fc=nn.Linear(4, 6),
        out=nn.Linear(6, 2),
    )
    assert places(model) == {"fc": "in front of out"}


def test_with_several_readers_it_sits_before_a_function_that_keeps_zero_and_says_so():
    model = Net(
        lambda s, x: s.a(h := F.gelu(s.fc(x))) + s.b(h),
        fc=nn.Linear(4, 6),
        a=nn.Linear(6, 2),
        b=nn.Linear(6, 2),
    )
    assert places(model) == {"fc": "behind fc"}
    assert "behind fc (gated before gelu)" in str(gateon.attach(model))


def test_where_no_place_is_right_it_says_so():
    model = Net(
        lambda s, x: s.a(h := torch.sigmoid(s.fc(x))) + s.b(h),
        fc=nn.Linear(4, 6),
        a=nn.Linear(6, 2),
        b=nn.Linear(6, 2),
    )
    with pytest.raises(
        ValueError,
        match=r"layer 'fc' cannot be placed behind its sigmoid.*nn\.Sigmoid\(\).*mapping",
    ):
        gateon.attach(model)


def test_a_layer_called_twice_is_not_gated_in_front_of_one_of_its_readers():
    model = Net(
        lambda s, x: s.a(torch.tanh(s.fc(x))) + s.b(torch.tanh(s.fc(-x))),
        fc=nn.Linear(4, 6),
        a=nn.Linear(6, 2),
        b=nn.Linear(6, 2),
    )
    assert places(model) == {"fc": "behind fc"}


def test_a_shared_activation_gets_no_gate_even_if_it_runs_as_often_as_the_layer():
    model = Net(
        lambda s, x: s.out(s.act(s.other(s.twice(s.act(s.twice(x)))))),
        twice=nn.Linear(4, 4),
        other=nn.Linear(4, 4),
        act=nn.ReLU(),
        out=nn.Linear(4, 2),
    )
    assert places(model) == {"twice": "behind twice", "other": "behind other"}


def test_an_activation_module_used_with_its_layer_only_keeps_the_gate_however_often_both_run():
    model = Net(
        lambda s, x: s.out(s.act(s.twice(s.act(s.twice(x))))),
        twice=nn.Linear(4, 4),
        act=nn.Sigmoid(),
        out=nn.Linear(4, 2),
    )
    assert places(model) == {"twice": "behind act"}


def test_a_gated_linear_unit_halves_the_units_and_softmax_is_no_activation_of_single_units():
    assert places(nn.Sequential(nn.Linear(4, 8), nn.GLU(), nn.Linear(4, 2))) == {"0": "behind 1"}
    (site, _) = find_sites(nn.Sequential(nn.Linear(4, 8), nn.GLU(), nn.Linear(4, 2)), None)
    assert (site.units, site.multiplied, site.narrows) == (4, True, True)
    over_positions = nn.Sequential(nn.Linear(4, 8), nn.GLU(1), nn.Linear(8, 2))
    assert places(over_positions) == {"0": "behind 0"}
    assert places(nn.Sequential(nn.Linear(4, 8), nn.Softmax(-1), nn.Linear(8, 2))) == {
        "0": "behind 0"
    }
    assert places(nn.Sequential(nn.Linear(4, 8), nn.PReLU(8), nn.Linear(8, 2))) == {"0": "behind 1"}


def test_a_norm_over_positions_and_features_belongs_to_the_layer_that_makes_the_features():
    (hidden, _) = find_sites(
        nn.Sequential(nn.Linear(4, 6), nn.LayerNorm((5, 6)), nn.ReLU(), nn.Linear(6, 2)), None
    )
    assert hidden.place == "2"
    assert hidden.owns == ("0", "1")


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (nn.BatchNorm2d(6), (2, 3, 5, 5)),
        (nn.GroupNorm(2, 6), (2, 3, 5, 5)),
        (nn.InstanceNorm2d(6, affine=True), (2, 3, 5, 5)),
        (ContextNorm(6), (2, 3, 5, 5)),
        (nn.LayerNorm((6, 5, 5)), (2, 3, 5, 5)),
        (nn.BatchNorm1d(6), (2, 3, 5)),
        (nn.BatchNorm3d(6), (2, 3, 5, 5, 5)),
    ],
)
def test_a_norm_behind_a_sum_is_observed_along_its_own_units(norm, shape):
    conv = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}[len(shape)]
    model = Net(
        lambda s, x: s.out(F.relu(s.norm(s.b(h := s.a(x)) + h)).flatten(2).mean(2)),
        a=conv(3, 6, 1),
        b=conv(6, 6, 1),
        norm=norm,
        out=nn.Linear(6, 2),
    )
    gates = gateon.attach(model, density=0.5)
    assert not gates.sites["norm"].gated
    assert "none (norm behind a sum)" in str(gates)
    gateon.obstruct(
        torch.optim.SGD(model.parameters(), lr=0.1), gates, rate=0.1, relevance="gradient"
    )
    x = torch.randn(shape)
    kept = {}
    norm.register_forward_hook(lambda m, a, out: (out.retain_grad(), kept.update(y=out))[0])
    model(x).square().sum().backward()
    y = kept["y"]
    contribution = (y * y.grad).flatten(2).sum(2) if y.dim() > 2 else y * y.grad
    torch.testing.assert_close(gates.taps["norm"].tap.grad, contribution.square().sum(0))


def test_readers_are_known_only_where_units_stay_apart():
    def readers(model, **options):
        return find_sites(model, None, **options)[0].readers

    conv, fc = nn.Conv2d(3, 4, 3), nn.Linear(4 * 9, 2)
    assert readers(nn.Sequential(conv, nn.ReLU(), nn.Flatten(), fc)) == ("3",)
    assert readers(nn.Sequential(conv, nn.ReLU(), nn.MaxPool2d(3), nn.Conv2d(4, 5, 1))) == ("3",)
    assert (
        readers(nn.Sequential(conv, nn.ReLU(), nn.Flatten(2), nn.Linear(9, 4), nn.Linear(4, 2)))
        == ()
    )
    assert readers(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))) == ("2",)
    # Flattened positions of a Linear come position by position, not unit by unit.
    assert readers(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Flatten(), nn.Linear(30, 2))) == ()
    assert readers(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Softmax(-1), nn.Linear(6, 2))) == ()


def test_flattened_positions_of_a_linear_layer_are_not_gated_as_if_they_were_units():
    model = Net(
        lambda s, x: s.out(torch.tanh(s.fc(x)).flatten(1)), fc=nn.Linear(4, 6), out=nn.Linear(30, 2)
    )
    gates = gateon.attach(model, density=0.5)
    x = torch.randn(3, 5, 4)
    h = torch.tanh(gates.gain()["fc"] * F.linear(x, model.fc.weight, model.fc.bias))
    torch.testing.assert_close(model(x), model.out(h.flatten(1)))


def test_heads_are_the_last_layers_and_all_of_them():
    model = Net(
        lambda s, x: {"a": F.log_softmax(s.a(h := F.relu(s.fc(x))), -1), "b": s.b(h)},
        fc=nn.Linear(4, 6),
        a=nn.Linear(6, 2),
        b=nn.Linear(6, 3),
    )
    assert [s.name for s in find_sites(model, None) if s.head] == ["a", "b"]


# Layers.


@pytest.mark.parametrize(
    ("layer", "shape", "name"),
    [
        (nn.Linear(4, 6), (2, 4), "weight"),
        (nn.Linear(4, 6), (2, 4), "bias"),
        (nn.Conv1d(4, 6, 3), (2, 4, 5), "weight"),
        (nn.Conv2d(4, 6, 3, groups=2), (2, 4, 5, 5), "weight"),
        (nn.Conv2d(4, 4, 3, groups=4), (2, 4, 5, 5), "weight"),
        (nn.Conv3d(4, 6, 2), (2, 4, 3, 3, 3), "bias"),
        (nn.ConvTranspose1d(4, 6, 3), (2, 4, 5), "weight"),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), (2, 4, 5, 5), "weight"),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), (2, 4, 5, 5), "bias"),
    ],
)
def test_the_part_of_a_parameter_that_is_a_units_own_is_what_its_output_depends_on(
    layer, shape, name
):
    units, dim = units_of(layer), unit_dim(layer)
    assert is_layer(layer)
    for unit in range(units):
        values = torch.zeros(units)
        values[unit] = 1
        mine = spread(layer, name, values)
        layer.zero_grad()
        y = layer(torch.rand(shape) + 0.5)
        assert y.shape[dim] == units
        y.select(dim, unit).sum().backward()
        assert torch.equal(
            layer.get_parameter(name).grad != 0, (mine != 0).expand_as(layer.get_parameter(name))
        )


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm1d(6), nn.LayerNorm(6), nn.RMSNorm(6), nn.GroupNorm(3, 6), ContextNorm(6)]
)
def test_norms_have_units_but_make_none(norm):
    assert units_of(norm) == 6
    assert is_norm(norm)
    assert not is_layer(norm)
    assert not is_activation(norm)
    assert rescales(norm, 6, -1)
    assert not rescales(norm, 5, -1)
    assert norm(torch.randn(4, 6)).shape[unit_dim(norm)] == 6
