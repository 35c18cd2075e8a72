import copy

import pytest
import torch
from torch import nn

import gateon
from gateon.anatomy.converting import context_norms
from gateon.anatomy.norm import ContextNorm, kept_statistics

pytestmark = pytest.mark.numeric

PLAIN = {
    2: (nn.BatchNorm1d, (6, 4)),
    3: (nn.BatchNorm1d, (6, 4, 5)),
    4: (nn.BatchNorm2d, (6, 4, 5, 3)),
    5: (nn.BatchNorm3d, (6, 4, 5, 3, 2)),
}


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 2 + 1


def tensors_equal(a, b):
    return set(a) == set(b) and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("dims", PLAIN)
@pytest.mark.parametrize("affine", [True, False])
def test_with_one_context_it_is_batch_norm(dims, affine):
    kind, shape = PLAIN[dims]
    plain, ours = (
        kind(4, affine=affine, momentum=0.3, eps=1e-3),
        ContextNorm(4, affine=affine, momentum=0.3, eps=1e-3),
    )
    if affine:
        with torch.no_grad():
            for norm in (plain, ours):
                norm.weight.copy_(torch.tensor([0.5, 2.0, -1.0, 1.5]))
                norm.bias.copy_(torch.tensor([0.1, 0.2, 0.3, -0.4]))
    for step in range(3):
        x, y = draw(*shape, seed=step).requires_grad_(), draw(*shape, seed=step).requires_grad_()
        assert torch.equal(plain(x), ours(y))
        plain(x).square().sum().backward()
        ours(y).square().sum().backward()
        assert torch.equal(x.grad, y.grad)
        assert torch.equal(plain.running_mean, ours.running_mean[0])
        assert torch.equal(plain.running_var, ours.running_var[0])
    if affine:
        assert torch.equal(plain.weight.grad, ours.weight.grad)
        assert torch.equal(plain.bias.grad, ours.bias.grad)
    x = draw(*shape, seed=9)
    assert torch.equal(plain.eval()(x), ours.eval()(x))
    assert torch.allclose(ours(x)[:1], ours(x[:1]))


def test_training_one_context_leaves_the_statistics_of_others_bit_for_bit():
    norm = ContextNorm(4, contexts=3)
    norm.context = torch.tensor(1)
    before = norm.running_mean.clone(), norm.running_var.clone()
    norm(draw(6, 4))
    for old, new in zip(before, (norm.running_mean, norm.running_var), strict=True):
        assert torch.equal(old[[0, 2]], new[[0, 2]])
        assert not torch.equal(old[1], new[1])


@pytest.mark.parametrize("shape", [(7, 4), (7, 4, 3), (7, 4, 3, 2)])
def test_mixed_contexts_in_training_use_each_contexts_own_samples(shape):
    contexts = torch.tensor([0, 2, 0, 2, 2, 0, 2])
    mixed, apart = ContextNorm(4, contexts=3), ContextNorm(4, contexts=3)
    x = draw(*shape)
    mixed.context = contexts
    y = mixed(x)
    for k in (0, 2):
        apart.context = torch.tensor(k)
        assert torch.equal(y[contexts == k], apart(x[contexts == k]))
    assert tensors_equal(mixed.state_dict(), apart.state_dict())
    assert torch.equal(mixed.running_mean[1], torch.zeros(4))


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3), (5, 4, 3, 2)])
def test_mixed_contexts_in_evaluation_are_each_sample_alone(shape):
    norm = ContextNorm(4, contexts=2)
    for k in (0, 1):
        norm.context = torch.tensor(k)
        norm(draw(*shape, seed=k) * (k + 1))
    norm.eval()
    x, contexts = draw(*shape, seed=5), torch.tensor([1, 0, 1, 1, 0])
    norm.context = contexts
    mixed = norm(x)
    for n in range(5):
        norm.context = contexts[n]
        torch.testing.assert_close(mixed[n : n + 1], norm(x[n : n + 1]))


def test_mixed_contexts_carry_gradients_to_every_sample():
    norm = ContextNorm(3, contexts=2).double()
    norm.context = torch.tensor([0, 1, 1, 0, 0])
    x = draw(5, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(norm, (x,))


def test_statistics_of_the_batch_are_used_in_evaluation_too_and_kept_nowhere():
    norm = ContextNorm(4, contexts=2, statistics="batch")
    before = copy.deepcopy(norm.state_dict())
    x = draw(6, 4)
    trained = norm(x)
    assert torch.equal(trained, norm.eval()(x))
    assert torch.equal(trained, nn.BatchNorm1d(4)(x))
    assert tensors_equal(before, norm.state_dict())


def test_add_context_adds_fresh_statistics_and_keeps_the_old():
    norm = ContextNorm(4)
    norm(draw(6, 4))
    old = norm.running_mean.clone()
    norm.add_context()
    assert torch.equal(norm.running_mean[:1], old)
    assert torch.equal(norm.running_mean[1], torch.zeros(4))
    assert torch.equal(norm.running_var[1], torch.ones(4))
    norm.context = torch.tensor(1)
    norm(draw(6, 4))
    assert torch.equal(norm.running_mean[0], old[0])


def test_a_state_with_more_contexts_makes_room():
    big, small = ContextNorm(4, contexts=3), ContextNorm(4)
    big.context = torch.tensor(2)
    big(draw(6, 4))
    small.load_state_dict(big.state_dict())
    assert tensors_equal(big.state_dict(), small.state_dict())


def test_conversion_keeps_parameters_statistics_mode_and_outputs():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.Sequential(nn.BatchNorm2d(4, eps=1e-3, momentum=0.2), nn.ReLU()),
        nn.BatchNorm2d(4),
    )
    for step in range(3):
        model(draw(5, 3, 6, 6, seed=step))
    model[2].eval()
    with torch.no_grad():
        model[1][0].weight.mul_(1.7)
    plain, parameters, modes = (
        copy.deepcopy(model),
        list(model.parameters()),
        [m.training for m in model.modules()],
    )
    assert context_norms(model, contexts=2) is model
    assert [type(m) for m in model.modules()].count(ContextNorm) == 2
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert [m.training for m in model.modules()] == modes
    x = draw(5, 3, 6, 6, seed=7)
    assert torch.equal(plain(x), model(x))
    assert torch.equal(plain[1][0].running_mean, model[1][0].running_mean[0])
    assert torch.equal(plain.eval()(x), model.eval()(x))
    assert not torch.equal(model[1][0].running_mean[0], model[1][0].running_mean[1])


def test_a_norm_that_stands_in_two_places_is_still_one_after_conversion():
    shared = nn.BatchNorm1d(4)
    model = context_norms(
        nn.Sequential(nn.Linear(4, 4), shared, nn.Sequential(nn.Linear(4, 4), shared), shared)
    )
    assert isinstance(model[1], ContextNorm)
    assert model[1] is model[2][1] is model[3]


def test_a_norm_without_statistics_goes_on_using_the_batch():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False))
    plain = copy.deepcopy(model)
    context_norms(model)
    x = draw(6, 4)
    assert torch.equal(plain.eval()(x), model.eval()(x))


def test_a_lone_batch_norm_is_converted_too():
    assert isinstance(context_norms(nn.BatchNorm1d(4)), ContextNorm)


def test_attach_and_add_context_give_every_norm_as_many_contexts_as_the_gates_have():
    model = context_norms(
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    )
    gates = gateon.attach(model, contexts=3, density=0.5)
    assert len(model[1].running_mean) == 3
    gates.add_context()
    assert len(model[1].running_mean) == len(model[1].running_var) == 4
    gates.switch(3)
    model(draw(6, 3))
    assert not torch.equal(model[1].running_mean[3], torch.zeros(4))
    assert torch.equal(model[1].running_mean[:3], torch.zeros(3, 4))


@pytest.mark.parametrize("contexts", [torch.tensor(1), torch.tensor([0, 1, 1, 0, 1, 0])])
def test_kept_statistics_are_put_back_bit_for_bit(contexts):
    model = nn.Sequential(
        ContextNorm(4, contexts=2),
        nn.BatchNorm1d(4),
        nn.InstanceNorm1d(4, track_running_stats=True),
    )
    model[0].context = contexts
    model(draw(6, 4, 3))
    before = copy.deepcopy(model.state_dict())
    restore = kept_statistics(model)
    model(draw(6, 4, 3, seed=1))
    assert not tensors_equal(before, model.state_dict())
    restore()
    assert tensors_equal(before, model.state_dict())


def test_statistics_follow_a_change_of_precision():
    norm = ContextNorm(4).double()
    assert norm(draw(6, 4).double()).dtype == norm.running_mean.dtype == torch.float64


@pytest.mark.parametrize("training", [True, False])
def test_a_wrong_number_of_contexts_is_refused_and_moves_nothing(training):
    norm = ContextNorm(4, contexts=2).train(training)
    norm.context = torch.tensor([0, 1])
    before = copy.deepcopy(norm.state_dict())
    with pytest.raises(ValueError, match=r"2 contexts were given for a batch of 4: switch to one"):
        norm(draw(4, 4))
    assert tensors_equal(before, norm.state_dict())


def test_a_context_with_a_single_sample_cannot_be_normalised_and_moves_nothing():
    norm = ContextNorm(4, contexts=2)
    norm.context = torch.tensor([0, 0, 1])
    before = copy.deepcopy(norm.state_dict())
    with pytest.raises(ValueError, match="Context 1 has a single sample"):
        norm(draw(3, 4))
    assert tensors_equal(before, norm.state_dict())
    # a single sample at several positions has a variance
    assert norm(draw(3, 4, 5)).shape == (
        3,
        4,
        5,
    )


def test_bad_arguments_name_what_is_wrong():
    with pytest.raises(ValueError, match="'running'"):
        ContextNorm(4, statistics="running")
    with pytest.raises(ValueError, match="contexts must be at least 1, got 0"):
        ContextNorm(4, contexts=0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4, momentum=None))
    with pytest.raises(ValueError, match="momentum=None"):
        context_norms(model)
    assert isinstance(model[0], nn.BatchNorm1d)


def test_conversion_after_attach_would_lose_gates_and_is_refused():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    gates = gateon.attach(model, density=0.5)
    with pytest.raises(ValueError, match="before attach"):
        context_norms(model)
    assert isinstance(model[1], nn.BatchNorm1d)
    assert list(gates.gates) == ["0"]


class WithActivation(nn.BatchNorm2d):
    """As timm has it: dropout and an activation inside the norm."""

    def __init__(self, units, act):
        super().__init__(units)
        self.drop, self.act = nn.Identity(), act

    def forward(self, x):
        return self.act(self.drop(super().forward(x)))


class Doubled(nn.BatchNorm2d):
    def forward(self, x):
        return 2 * super().forward(x)


def with_activation(act):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        WithActivation(8, act),
        nn.Flatten(),
        nn.Linear(8 * 16, 3),
    )


@pytest.mark.parametrize("act", [nn.ReLU(), nn.SiLU(), nn.PReLU(8)])
def test_an_activation_inside_a_norm_stays_when_its_statistics_become_those_of_contexts(act):
    model, x = with_activation(act), torch.randn(4, 3, 4, 4)
    for _ in range(3):
        model(x)
    expected, keys = model.eval()(x), set(model.state_dict())
    context_norms(model)
    assert isinstance(model[1], ContextNorm) and model[1].behind == ("drop", "act")
    torch.testing.assert_close(model(x), expected)
    assert keys - set(model.state_dict()) == {"1.num_batches_tracked"}


@pytest.mark.parametrize("act", [nn.ReLU(), nn.SiLU()])
def test_behind_it_units_are_narrowed_and_folded(act):
    model, x = context_norms(with_activation(act)), torch.randn(4, 3, 4, 4)
    gates = gateon.attach(model, contexts=2, density=0.5)
    model(x)
    gates.switch(1)
    expected = model.eval()(x)
    small = gateon.compact(model, 1)
    assert small[0].weight.shape == (4, 3, 3, 3) and small[3].weight.shape == (3, 4 * 16)
    torch.testing.assert_close(small(x), expected)
    folded = gateon.compact(model, 1, fold=True)
    torch.testing.assert_close(folded(x), expected)
    assert not any(type(m).__module__.startswith("gateon") for m in folded.modules())


def test_gains_are_folded_into_a_norm_only_if_its_activation_passes_them_on():
    for act, passes in ((nn.ReLU(), True), (nn.SiLU(), False)):
        model, x = with_activation(act).eval(), torch.randn(4, 3, 4, 4)
        gateon.attach(model, density=0.5)
        expected = model(x)
        if passes:
            torch.testing.assert_close(gateon.compact(model, 0, fold=True)(x), expected)
        else:
            with pytest.raises(ValueError, match="no weights to fold into"):
                gateon.compact(model, 0, fold=True)


def test_a_norm_that_does_something_else_is_refused_and_left_as_it_was():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), Doubled(8))
    with pytest.raises(ValueError, match="Doubled does more than normalise"):
        context_norms(model)
    assert isinstance(model[1], Doubled)


def test_a_slope_for_every_unit_inside_a_norm_keeps_the_width():
    model = context_norms(with_activation(nn.PReLU(8)))
    gates = gateon.attach(model, density=0.5)
    assert not gates.sites["0"].narrows


def test_gemmas_norms_multiply_by_one_more_than_their_weight():
    class FromOne(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6))

        def forward(self, x):
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)

    FromOne.__name__ = "FromOneNorm"
    model = nn.Sequential(nn.Linear(4, 6), FromOne(), nn.ReLU(), nn.Linear(6, 2))
    x = torch.randn(5, 4)
    gateon.attach(model, density=0.5)
    torch.testing.assert_close(gateon.compact(model, 0, fold=True)(x), model(x))


class Twice(nn.Sequential):
    def __init__(self, inputs, units):
        layers = []
        for n in (inputs, units):
            layers += [nn.Conv2d(n, units, 3, padding=1), nn.BatchNorm2d(units), nn.ReLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.bottom, self.up = Twice(1, 6), Twice(6, 8), Twice(14, 6)
        self.out = nn.Conv2d(6, 2, 1)

    def forward(self, x):
        skipped = self.down(x)
        bottom = self.bottom(nn.functional.max_pool2d(skipped, 2))
        back = nn.functional.interpolate(bottom, scale_factor=2)
        return self.out(self.up(torch.cat([skipped, back], 1)))


def test_a_unet_is_narrowed_once_its_norms_belong_to_contexts():
    torch.manual_seed(0)
    model, x = UNet().double(), torch.randn(4, 1, 8, 8, dtype=torch.float64)
    model(x)
    plain = gateon.attach(model, density=0.5)
    assert not any(site.narrows for site in plain.sites.values())
    context_norms(plain.detach())
    gates = gateon.attach(model, contexts=2, density=0.5)
    # all but what is joined with something else
    narrowed = {name for name, site in gates.sites.items() if site.narrows}
    assert narrowed == {"down.0", "bottom.0", "up.0", "up.3"}
    gates.switch(1)
    small = gateon.compact(model, 1)
    torch.testing.assert_close(small(x), model(x))
    sizes = [sum(p.numel() for p in m.parameters()) for m in (small, model)]
    assert sizes[0] < 0.6 * sizes[1]
