"""HAT and AdaHAT: masks, what they protect, and their formulas."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from forgetting import forgotten, forgotten_by_finetuning
from method_tools import ADAM, end, learner_of, tiny_cnn, tiny_mlp
from torch import nn

import gateon
from easy_tasks import train
from gateon.methods.adahat import AdaHAT
from gateon.methods.hat import HAT
from gateon.methods.shared.scaled import scale_updates
from gateon.networks import mlp
from gateon.networks.heads import with_task_heads

pytestmark = pytest.mark.numeric

SGD = partial(torch.optim.SGD, lr=0.1)
MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01)


def plain_mlp():
    return mlp(8, (24, 24), 3, norm="none")


def after_one_task(method, optimizer, network=plain_mlp, used=0.5):
    """A learner whose first task uses exactly this part of every layer."""
    learner = learner_of(network, method, optimizer)
    train(learner, 0, 3)
    with torch.no_grad():
        for mask in method.masks.values():
            mask.embedding.copy_(
                torch.where(torch.arange(mask.site.units) < used * mask.site.units, 1.0, -1.0)
            )
    end(learner, 0)
    return learner


@pytest.mark.parametrize("optimizer", [SGD, ADAM, MOMENTUM])
def test_units_that_a_task_uses_do_not_move_at_all(optimizer):
    method = HAT(steps=4)
    learner = after_one_task(method, optimizer)
    assert all(set(mask.cumulative.tolist()) == {0.0, 1.0} for mask in method.masks.values())
    x = torch.randn(16, 8)
    before, outputs = (
        {n: p.clone() for n, p in learner.model.named_parameters()},
        learner.predict(x, context=0),
    )
    train(learner, 1, 9)
    after = dict(learner.model.named_parameters())
    still = {name: after[name] == before[name] for name in before}
    half = slice(0, 12)
    # the first layer reads inputs, which every task uses
    assert still["1.weight"][half].all() and still["1.bias"][half].all()
    assert still["3.weight"][half, half].all() and still["3.bias"][half].all()
    assert still["5.weight"][:, half].all() and still["5.bias"].all()
    assert torch.equal(learner.predict(x, context=0), outputs)
    free = [
        still["1.weight"][12:],
        still["3.weight"][12:, 12:],
        still["3.weight"][12:, half],
        still["5.weight"][:, 12:],
    ]
    assert all(not part.all() for part in free)


def test_convolutions_are_protected_channel_by_channel():
    network = partial(
        nn.Sequential,
        nn.Unflatten(1, (1, 2, 4)),
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48, 8),
        nn.ReLU(),
    )
    method = HAT(steps=4)
    learner = after_one_task(method, ADAM, lambda: network(nn.Linear(8, 3)))
    factors = dict(
        zip(
            ("conv", "conv bias", "fc", "fc bias", "out", "out bias"),
            method.factors().values(),
            strict=True,
        )
    )
    assert (
        factors["conv"].shape == (6, 1, 3, 3)
        and factors["conv"].flatten(1).unique(dim=1).flatten().tolist() == [0] * 3 + [1] * 3
    )
    assert factors["fc"].shape == (8, 48)
    assert (
        not factors["fc"][:4, :24].any()
        and factors["fc"][:4, 24:].all()
        and factors["fc"][4:].all()
    )
    x = torch.randn(4, 8)
    before = learner.predict(x, context=0)
    train(learner, 1, 9)
    assert torch.equal(learner.predict(x, context=0), before)


def test_the_update_is_scaled_by_one_minus_the_smaller_cumulative_mask():
    method = HAT()
    learner_of(plain_mlp, method)
    first, second = method.masks["1"], method.masks["3"]
    first.cumulative.uniform_(), second.cumulative.uniform_()
    method.tasks = 1
    weight, bias = list(method.factors().values())[2:4]
    for i in range(24):
        assert bias[i] == 1 - second.cumulative[i]
        for j in range(24):
            assert weight[i, j] == 1 - min(second.cumulative[i], first.cumulative[j])


def test_s_runs_from_its_least_to_its_largest_and_again():
    method = HAT(steps=5, s_max=100)
    learner = learner_of(plain_mlp, method)
    seen = []
    for step in range(7):
        train(learner, 0, step + 1, start=step)
        learner.model.train()
        seen.append(method.masks["1"].s)
    expected = [1 / 100 + (100 - 1 / 100) * b / 4 for b in (1, 2, 3, 4, 0, 1, 2)]
    assert seen == pytest.approx(expected)
    train(learner, 1, 1)
    assert method.masks["1"].s == pytest.approx(expected[0])  # every context has its own cycle
    learner.model.eval()
    assert method.masks["1"].s == 100


def test_the_penalty_is_the_share_of_free_units_that_are_taken():
    method = HAT(strength=0.5, steps=1, s_max=2)
    learner = learner_of(plain_mlp, method)
    taken = room = 0.0
    for n, mask in enumerate(method.masks.values()):
        mask.cumulative.fill_(0.25 * n)
        for e in mask.embedding.tolist():
            taken += (1 - 0.25 * n) / (1 + math.exp(-2 * e))
            room += 1 - 0.25 * n
    assert method.penalty(learner.model, None).item() == pytest.approx(0.5 * taken / room, rel=1e-5)
    for mask in method.masks.values():
        mask.cumulative.fill_(1)
    assert method.penalty(learner.model, None) is None


def test_the_gradient_of_embeddings_is_compensated_and_embeddings_are_clipped():
    method = HAT(steps=3, s_max=50, largest=1.5)
    learner = learner_of(plain_mlp, method, SGD)
    train(learner, 0, 1)
    mask = method.masks["3"]
    assert all(m.embedding.abs().max() <= 1.5 for m in method.masks.values())
    learner.model.train()
    mask.embedding.grad = torch.ones(24)
    e, s = mask.embedding.detach().double(), mask.s
    method._compensate()
    expected = 50 / s * (torch.cosh((s * e).clamp(-50, 50)) + 1) / (torch.cosh(e) + 1)
    assert torch.allclose(mask.embedding.grad.double(), expected, rtol=1e-4)


def test_heads_of_tasks_are_left_free_and_norms_follow_the_context():
    method = HAT(steps=4)
    learner = learner_of(lambda: with_task_heads(mlp(8, (24, 24), 3)), method)
    train(learner, 0, 12)
    end(learner, 0)
    factors = method.factors()
    assert not {*learner.model[-1].parameters()} & factors.keys()
    for mask in method.masks.values():
        mask.embedding.data.fill_(1)
    learner.end_task(0, [])
    x = torch.randn(6, 8)
    before = learner.predict(x, context=0)
    train(learner, 1, 8)
    assert torch.equal(learner.predict(x, context=0), before)  # statistics too
    assert learner.model[2].running_mean.shape[0] == 2 and not torch.equal(
        *learner.model[2].running_mean
    )


def test_it_forgets_less_than_finetuning():
    lost, learned = forgotten(HAT(steps=20))
    assert learned > 0.7 and lost < 0.1 * forgotten_by_finetuning()


def test_adahat_slows_by_importance():
    method = AdaHAT(steps=4, alpha=0.02, epsilon=0.3)
    learner = after_one_task(method, ADAM)
    train(learner, 1, 2)
    end(learner, 1)
    assert torch.equal(method.masks["1"].importance[:12] >= 1, torch.ones(12, dtype=torch.bool))
    learner.model.train()
    first, second = method.masks["1"], method.masks["3"]
    with torch.no_grad():
        second.embedding.fill_(1.0)  # it takes what is free, which makes everything slower
    free = 1 - second.cumulative
    r = 0.02 / (0.3 + ((second.mask() * free).sum() / free.sum()).item())
    assert r < 0.9 * 0.02 / 0.3
    factors = list(method.factors().values())
    for i, j in [(0, 0), (3, 20), (20, 3), (20, 20)]:
        assert factors[2][i, j].item() == pytest.approx(
            r / (min(second.importance[i], first.importance[j]).item() + r), rel=1e-4
        )
        assert factors[3][i].item() == pytest.approx(
            r / (second.importance[i].item() + r), rel=1e-4
        )
    shared = 0.02 / 0.3
    assert factors[5][0].item() == pytest.approx(shared / (2 + shared), rel=1e-4)


def test_adahat_moves_what_hat_freezes():
    def distance(method):
        learner = after_one_task(method, ADAM)
        before = learner.model[3].weight[:12, :12].clone()
        train(learner, 1, 8)
        return (learner.model[3].weight[:12, :12] - before).abs().max().item()

    assert distance(HAT(steps=4)) == 0
    small, large = distance(AdaHAT(steps=4, alpha=1e-4)), distance(AdaHAT(steps=4, alpha=1.0))
    assert 0 < small < 0.01 * large


def test_adahat_forgets_less_than_finetuning():
    lost, learned = forgotten(AdaHAT(steps=20))
    assert learned > 0.7 and lost < 0.1 * forgotten_by_finetuning()


@pytest.mark.parametrize("optimizer", [SGD, MOMENTUM, ADAM])
def test_a_factor_of_one_is_the_plain_optimizer_to_the_bit(optimizer):
    torch.manual_seed(0)
    a, b = nn.Parameter(torch.randn(50)), nn.Parameter(torch.empty(50))
    b.data.copy_(a)
    plain, scaled = optimizer([a]), optimizer([b])
    scale_updates(scaled, lambda: {b: torch.ones(50)})
    for _ in range(5):
        for p, o in ((a, plain), (b, scaled)):
            (p**3).sum().backward()
            o.step()
            o.zero_grad()
    assert torch.equal(a, b)


@pytest.mark.parametrize(
    "bad", [{"strength": -1}, {"s_max": 1.0}, {"steps": 0}, {"largest": 0.0}, {"clip": -1.0}]
)
def test_bad_settings_are_refused_before_the_model_is_changed(bad):
    model = plain_mlp()
    with pytest.raises(ValueError, match="HAT needs"):
        learner_of(lambda: model, HAT(**bad))
    assert not any("unit_module" in key for key in model.state_dict())


def test_bad_adahat_settings_are_refused():
    with pytest.raises(ValueError, match="alpha and epsilon"):
        learner_of(tiny_mlp, AdaHAT(alpha=0.0))


@pytest.mark.parametrize("network", [tiny_mlp, tiny_cnn])
def test_a_context_that_was_not_learned_is_refused(network):
    learner = gateon.Learner(network(), optimizer=ADAM, method=HAT())
    train(learner, 0, 1)
    with pytest.raises(IndexError, match="Context 4"):
        learner.predict(torch.zeros(2, 8), context=4)


def test_every_step_compensates_the_gradient_of_embeddings():
    method = HAT(steps=3, s_max=50, largest=100.0)
    learner = learner_of(plain_mlp, method, SGD)
    train(learner, 0, 2)
    mask = method.masks["3"]
    learner.model.train()
    e, s, raw = mask.embedding.detach().clone(), mask.s, []
    mask.embedding.register_hook(raw.append)
    train(learner, 0, 1)
    factor = 50 / s * (torch.cosh((s * e).clamp(-50, 50)) + 1) / (torch.cosh(e) + 1)
    torch.testing.assert_close(
        mask.embedding.detach(), e - 0.1 * raw[0] * factor, rtol=1e-4, atol=1e-5
    )


def test_every_step_clips_the_norm_of_the_gradient():
    learner = learner_of(plain_mlp, HAT(steps=3, clip=1e-3), SGD)
    before = [p.detach().clone() for p in learner.model.parameters()]
    train(learner, 0, 1)
    moved = torch.cat(
        [
            (p.detach() - b).flatten()
            for p, b in zip(learner.model.parameters(), before, strict=True)
        ]
    )
    assert moved.norm().item() == pytest.approx(0.1 * 1e-3, rel=0.05)
