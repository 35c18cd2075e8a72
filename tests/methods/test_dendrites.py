"""Active dendrites: segments, winners, sparsity, prototypes."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from forgetting import learn_digits
from method_tools import ADAM, end, learner_of, reloaded, tiny_cnn, tiny_mlp
from torch import nn

from easy_tasks import assert_same, batch, train
from gateon import Finetune
from gateon.methods.both import Both
from gateon.methods.dendrites import Dendrites, DendriticUnits, Prototypes
from gateon.methods.registry import make
from gateon.methods.si import SI
from gateon.networks import mlp

pytestmark = pytest.mark.numeric

RAW = partial(Dendrites, mean=0.0, std=1.0, segments=4, on=0.25)


def plain_mlp():
    return mlp(8, (24, 24), 3, norm="none")


def units_of(model):
    return [module for module in model.modules() if isinstance(module, DendriticUnits)]


def units(**options):
    settings = {
        "units": 40,
        "dim": -1,
        "segments": 3,
        "inputs": 5,
        "winners": 7,
        "generator": torch.Generator().manual_seed(0),
    }
    return DendriticUnits(**settings | options)


def test_exactly_k_units_win_and_they_are_the_largest():
    layer = units()
    layer.contexts = torch.randn(1, 5)
    t = torch.randn(30, 40)
    y = layer(t)
    assert (y != 0).sum(1).tolist() == [7] * 30
    modulated = t * torch.sigmoid(layer.modulation())
    assert torch.equal(y.sort(1, descending=True).values[:, :7][:, 0], modulated.max(1).values)
    for row, full in zip(y, modulated, strict=True):
        assert (
            torch.equal(row[row != 0], full[row != 0])
            and full[row == 0].max() <= row[row != 0].min()
        )


def test_winners_are_counted_at_every_position_of_a_convolution():
    layer = units(dim=-3)
    y = layer(torch.randn(2, 40, 3, 3))
    assert (y != 0).sum(1).unique().tolist() == [7]


def test_even_equal_units_have_exactly_k_winners():
    layer = units(winners=5)
    assert (layer(torch.ones(3, 40)) != 0).sum(1).tolist() == [5, 5, 5]


def test_the_segment_with_the_largest_absolute_value_is_chosen_with_its_sign():
    layer = units(units=2, segments=3, inputs=2, winners=1)
    layer.segments.data.copy_(
        torch.tensor([[[1.0, 0], [-3, 0], [2, 0]], [[0, 1.0], [0, 2], [0, -1]]])
    )
    layer.contexts = torch.tensor([[1.0, 1.0], [-1.0, 0.5]])
    assert layer.modulation().tolist() == [[-3, 2], [3, 1]]
    layer.modulation()[0].sum().backward()
    assert (layer.segments.grad != 0).any(2).tolist() == [
        [False, True, False],
        [False, True, False],
    ]


def test_weights_that_are_cut_off_stay_so_and_every_unit_keeps_its_share():
    learner = learner_of(
        plain_mlp, RAW(sparsity=0.5), partial(torch.optim.Adam, lr=0.01, weight_decay=0.1)
    )
    off = {name: p == 0 for name, p in learner.model.named_parameters() if name.endswith("weight")}
    assert [set(mask.sum(1).tolist()) for mask in off.values()] == [{4}, {12}, {12}]
    train(learner, 0, 5)
    weights = dict(learner.model.named_parameters())
    assert all(torch.equal(weights[name] == 0, mask) for name, mask in off.items())
    bound = (0.25 * 12) ** -0.5
    first = learner_of(plain_mlp, RAW()).model
    assert (
        0.9 * bound < first[3].weight.abs().max() <= bound
        and first[1].weight.abs().max() <= 4**-0.5
    )


def test_a_prototype_is_the_mean_of_what_was_seen_of_the_task():
    method = RAW()
    learner = learner_of(plain_mlp, method)
    train(learner, 0, 3)
    seen = torch.cat([batch(0, seed=s)[0] for s in range(3)])
    assert torch.allclose(method.prototypes.means[0], seen.mean(0), atol=1e-6)
    with pytest.raises(FloatingPointError):
        learner.observe(
            torch.full((4, 8), float("inf")), torch.zeros(4, dtype=torch.long), context=0
        )
    assert torch.allclose(method.prototypes.means[0], seen.mean(0), atol=1e-6)
    end(learner, 0)
    train(learner, 1, 2)
    train(learner, 0, 5)
    # fixed when the task was over
    assert torch.allclose(method.prototypes.means[0], seen.mean(0), atol=1e-6)


def test_network_and_prototypes_see_standardised_inputs():
    method = Dendrites(mean=2.0, std=4.0)
    learner = learner_of(plain_mlp, method)
    seen = []
    learner.model[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    train(learner, 0, 1)
    assert torch.allclose(method.prototypes.means[0], (batch(0)[0].mean(0) - 2) / 4, atol=1e-6)
    assert torch.equal(seen[0], (batch(0)[0] - 2) / 4)


def test_at_test_each_sample_takes_the_nearest_prototype_whatever_the_label():
    method = RAW()
    learner = learner_of(plain_mlp, method)
    for task, shift in enumerate((-3.0, 3.0)):
        x, y = batch(task)
        learner.observe(x + shift, y, context=task)
        end(learner, task)
    x = torch.cat([batch(0, 5)[0] - 3, batch(1, 5)[0] + 3])
    mixed = learner.predict(x, context=0)
    assert [layer.chosen.tolist() for layer in units_of(learner.model)] == [[0] * 5 + [1] * 5] * 2
    assert torch.equal(mixed, learner.predict(x, context=1)) and not method.label_at_test
    assert torch.allclose(learner.predict(x[7:8], context=0), mixed[7:8], atol=1e-6)
    model = learner.model.eval()
    by_hand = F.linear(x, model[1].weight, model[1].bias)
    for layer, reader in ((model[2], model[3]), (model[4], model[5])):
        d = torch.stack([layer.segments @ c for c in method.prototypes.means])
        d = torch.where(d.amax(2) >= -d.amin(2), d.amax(2), d.amin(2)).repeat_interleave(5, 0)
        y = by_hand * torch.sigmoid(d)
        by_hand = F.linear(
            torch.where(y >= y.topk(6, 1).values[:, -1:], y, 0), reader.weight, reader.bias
        )
    assert torch.allclose(mixed, by_hand, atol=1e-5)


def test_with_si_it_goes_on_from_a_file(tmp_path):
    def make(seed):
        return learner_of(tiny_mlp, Both(RAW(), SI()), seed=seed, keep_optimizer=True)

    whole = make(0)
    assert whole.method.name == "dendrites+si" and not whole.method.label_at_test
    train(whole, 0, 6)
    end(whole, 0)
    train(whole, 1, 3)
    state = reloaded(whole.state_dict(), tmp_path / "state.safetensors")
    other = make(3)
    other.load_state_dict(state)
    assert train(whole, 1, 6, start=3) == train(other, 1, 6, start=3)
    assert_same(whole.state_dict(), other.state_dict())


def test_it_forgets_less_than_finetuning():
    def lost(method):
        # as published; at larger rates a net this small forgets like any other
        adam = partial(torch.optim.Adam, lr=5e-4)
        return learn_digits(
            learner_of(lambda: mlp(784, (200, 200), 10, norm="none"), method, adam), steps=120
        )

    (plain, _), (dendrites, learned) = lost(Finetune()), lost(Dendrites(segments=3, on=0.1))
    assert min(learned) > 0.7 and plain > 0.06
    assert dendrites < 0.7 * plain


@pytest.mark.parametrize(
    "bad", [{"segments": 0}, {"on": 0.0}, {"on": 1.5}, {"sparsity": 1.0}, {"std": 0.0}]
)
def test_bad_settings_are_refused_before_the_model_is_changed(bad):
    model = plain_mlp()
    with pytest.raises(ValueError, match="Dendrites needs"):
        learner_of(lambda: model, Dendrites(**bad))
    assert isinstance(model[2], nn.ReLU)


def test_a_model_it_cannot_work_on_is_refused_with_what_to_do():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.b(F.relu(self.a(x)))

    with pytest.raises(ValueError, match="make it a module"):
        learner_of(Functional, Dendrites())
    with pytest.raises(ValueError, match="set inputs"):
        learner_of(tiny_cnn, Dendrites())
    learner = learner_of(plain_mlp, Dendrites(inputs=9), ADAM)
    with pytest.raises(ValueError, match="An input has 8 numbers"):
        train(learner, 0, 1)


def test_the_nearest_prototype_is_the_nearest_not_the_longest():
    prototypes = Prototypes(2)
    prototypes.add_context()
    prototypes.means.copy_(torch.tensor([[1.0, 0.0], [10.0, 0.0]]))
    prototypes.counts.fill_(1)
    assert prototypes.eval().of_batch(torch.tensor([[2.0, 0.0], [9.0, 0.0]]))[1].tolist() == [0, 1]


def test_si_beside_it_holds_feed_forward_weights_and_leaves_segments_alone():
    method = make("dendrites+si", {}, {"tasks": 2, "inputs": 8}, seed=0)
    learner = learner_of(plain_mlp, method)
    train(learner, 0, 3)
    end(learner, 0)
    segments = {name for name, _ in learner.model.named_parameters() if name.endswith("segments")}
    assert (
        segments
        and set(method.second.importance)
        == {name for name, _ in learner.model.named_parameters()} - segments
    )
