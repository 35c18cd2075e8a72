"""RMN: maps, pruning, and weights that are used once and for all."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from forgetting import forgotten, forgotten_by_finetuning
from method_tools import ADAM, end, learner_of, tiny_cnn
from torch import nn

from easy_tasks import train
from gateon.anatomy.norm import ContextNorm
from gateon.methods.rmn import RMN, RelevanceMap
from gateon.networks import mlp
from gateon.networks.heads import with_task_heads

pytestmark = pytest.mark.numeric

MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01)


def plain_mlp():
    return mlp(8, (24, 24), 3, norm="none")


def maps_of(learner):
    return {name: m for name, m in learner.model.named_modules() if isinstance(m, RelevanceMap)}


def originals(learner):
    return {
        name: p.clone() for name, p in learner.model.named_parameters() if name.endswith("original")
    }


@pytest.mark.parametrize("optimizer", [ADAM, MOMENTUM, partial(torch.optim.SGD, lr=0.1)])
def test_weights_that_an_earlier_map_uses_do_not_change_by_a_bit(optimizer):
    learner = learner_of(plain_mlp, RMN(), optimizer)
    x = torch.randn(16, 8)
    train(learner, 0, 5)
    end(learner, 0)
    before, outputs = originals(learner), learner.predict(x, context=0)
    used = {name: m.used.clone() for name, m in maps_of(learner).items()}
    train(learner, 1, 8)
    for name, after in originals(learner).items():
        mask = used[name.replace("original", "0")]
        assert 0 < mask.float().mean() < 1
        assert torch.equal(after[mask], before[name][mask])
        assert not torch.equal(after[~mask], before[name][~mask])
    assert torch.equal(learner.predict(x, context=0), outputs)


def test_old_predictions_stay_to_the_bit_with_norms_and_convolutions():
    learner = learner_of(tiny_cnn, RMN())
    assert any(isinstance(m, ContextNorm) for m in learner.model.modules())
    x = torch.randn(16, 8)
    train(learner, 0, 5)
    end(learner, 0)
    outputs = learner.predict(x, context=0)
    train(learner, 1, 8)
    assert torch.equal(learner.predict(x, context=0), outputs)
    assert not torch.equal(learner.predict(x, context=1), outputs)


def test_a_layer_computes_with_softround_in_training_and_rounds_at_test():
    relevance = RelevanceMap(torch.zeros(2, 3), beta=100.0, seed=(0, 0))
    relevance.map.data.copy_(torch.tensor([[0.0, 0.49, 0.5], [0.51, 0.6, 1.0]]))
    weight = torch.arange(1.0, 7.0).view(2, 3)
    expected = weight / (1 + torch.exp(-100 * (relevance.map - 0.5)))
    assert torch.allclose(relevance(weight), expected)
    relevance.eval()
    assert relevance(weight).tolist() == [[0, 0, 0], [4, 5, 6]]


def test_pruning_leaves_out_what_is_uncertain_or_next_to_nothing():
    relevance = RelevanceMap(torch.zeros(5), beta=100.0, seed=(0, 0))
    relevance.map.data.copy_(torch.tensor([0.63, 0.65, 0.9, 0.9, 0.1]))
    relevance.prune(torch.tensor([1.0, 1.0, -1e-6, -2e-5, 5.0]))
    assert relevance.map.tolist() == pytest.approx([0, 0.65, 0, 0.9, 0])


def test_pruning_begins_with_the_last_part_of_a_task():
    learner = learner_of(plain_mlp, RMN(steps=10, prune_after=0.4))
    shares = []
    for step in range(10):
        train(learner, 0, step + 1, start=step)
        shares.append(
            float(maps_of(learner)["3.parametrizations.weight.0"].map.eq(0).float().mean())
        )
    assert max(shares[:4]) < 0.05 and min(shares[4:]) > 0.4


def test_maps_start_uniform_and_do_not_depend_on_how_many_there_are():
    a, b = (RelevanceMap(torch.zeros(100, 100), beta=100.0, seed=(3, 1)) for _ in range(2))
    a.add_context()
    a.add_context()
    b.add_context()
    assert torch.equal(a.maps[1], b.maps[1]) and not torch.equal(a.maps[0], a.maps[1])
    assert a.maps[2].mean().item() == pytest.approx(0.5, abs=0.02) and a.maps[
        2
    ].std().item() == pytest.approx(12**-0.5, abs=0.02)


def test_a_task_that_is_over_is_not_learned_again():
    learner = learner_of(plain_mlp, RMN())
    train(learner, 0, 5)
    end(learner, 0)
    x = torch.randn(8, 8)
    before = learner.predict(x, context=0)
    train(learner, 1, 3)
    train(learner, 0, 6)
    assert torch.equal(learner.predict(x, context=0), before)


def test_l1_makes_maps_smaller():
    def used(l1):
        learner = learner_of(plain_mlp, RMN(l1=l1), partial(torch.optim.Adam, lr=0.05))
        train(learner, 0, 30)
        end(learner, 0)
        return sum(float(m.used.sum()) for m in maps_of(learner).values())

    assert used(10.0) < 0.95 * used(0.0)


def test_heads_of_tasks_have_no_maps():
    learner = learner_of(lambda: with_task_heads(plain_mlp(), tasks=2), RMN())
    assert len(maps_of(learner)) == 4
    before = [p.clone() for p in learner.model[-1].parameters()]
    train(learner, 0, 3)
    end(learner, 0)
    train(learner, 1, 3)
    assert all(
        not torch.equal(a, b) for a, b in zip(before, learner.model[-1].parameters(), strict=True)
    )


def test_it_forgets_nothing_at_all():
    lost, learned = forgotten(RMN(steps=40))
    assert lost == 0 and forgotten_by_finetuning() > 0.1
    assert learned > 0.6


@pytest.mark.parametrize("bad", [{"beta": 0.0}, {"l1": -1.0}, {"prune_after": 1.5}, {"steps": 0}])
def test_bad_settings_are_refused_before_the_model_is_changed(bad):
    model = plain_mlp()
    with pytest.raises(ValueError, match="RMN needs"):
        learner_of(lambda: model, RMN(**bad))
    assert "1.weight" in model.state_dict()


def test_a_model_without_weights_to_share_is_refused():
    with pytest.raises(ValueError, match="Embedding has no Linear or convolution"):
        RMN().prepare(nn.Embedding(3, 4))


def test_maps_that_start_lower_take_fewer_weights():
    taken = {}
    for high in (1.0, 0.8):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(50, 40))
        method = RMN(high=high)
        method.prepare(model)
        method.end_task(model, 0, [])
        taken[high] = (
            torch.cat([m.used.flatten() for m in model.modules() if isinstance(m, RelevanceMap)])
            .float()
            .mean()
            .item()
        )
    assert taken[1.0] == pytest.approx(0.36, abs=0.03) and taken[0.8] == pytest.approx(
        0.2, abs=0.03
    )
    with pytest.raises(ValueError, match=r"high is above 0\.5"):
        RMN(high=0.4).prepare(nn.Sequential(nn.Linear(2, 2)))
