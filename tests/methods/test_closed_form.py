"""RanPAC and nearest class means: later tasks only add to sums."""

from __future__ import annotations

import pytest
import torch
from method_tools import end, learner_of, tiny_mlp
from torch import nn

import reference
from easy_tasks import batch, train
from gateon.methods.closed_form import NCM, ClassMeans, RanPAC
from gateon.networks.heads import with_task_heads
from rounding import assert_same


def class_batch(task, count=90):
    """Task k has class k alone, far from the others."""
    generator = torch.Generator().manual_seed(task)
    x = torch.randn(count, 8, generator=generator)
    x[:, task] += 6
    return x, torch.full((count,), task)


@pytest.mark.numeric
def test_scores_rank_classes_by_the_distance_to_their_mean():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 5, generator=generator), torch.arange(60) % 3
    means = ClassMeans(5)
    for some in (slice(0, 20), slice(20, 60)):
        means.add(x[some], y[some], 4)
    distances = reference.distances_to_class_means(x, y, 3, x)
    scores = means.scores(x)
    assert_same(x.square().sum(1, keepdim=True) - scores[:, :3], distances.float())
    assert (scores[:, 3] == -torch.inf).all()  # has no sample


@pytest.mark.parametrize("make", [NCM, lambda: RanPAC(width=200)], ids=["ncm", "ranpac"])
def test_classes_that_come_one_by_one_are_kept(make):
    learner = learner_of(tiny_mlp, make())
    for task in range(3):
        for _ in range(20):
            learner.observe(*class_batch(task), context=task)
        learner.end_task(task, [class_batch(task)])
    for task in range(3):
        x, y = class_batch(task)
        assert (learner.predict(x).argmax(1) == y).float().mean() > 0.65  # chance is 0.33


@pytest.mark.parametrize("make", [NCM, lambda: RanPAC(width=200)], ids=["ncm", "ranpac"])
def test_behind_the_first_task_only_the_last_layer_moves(make):
    def norms():
        return nn.Sequential(nn.Linear(8, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 3))

    learner = learner_of(norms, make())
    train(learner, 0, 5)
    end(learner, 0)
    before = {name: value.clone() for name, value in learner.model.state_dict().items()}
    train(learner, 1, 5)
    after = learner.model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"3.weight", "3.bias"}


def test_the_order_of_batches_does_not_matter():
    outputs = []
    for order in ((0, 1, 2), (2, 0, 1)):
        learner = learner_of(tiny_mlp, RanPAC(width=50))
        train(learner, 0, 3)
        learner.end_task(0, [batch(0, seed=s) for s in order])
        outputs.append(learner.predict(batch(1)[0]))
    torch.testing.assert_close(*outputs, rtol=1e-3, atol=1e-4)


def test_a_head_for_every_task_is_refused():
    def heads():
        return with_task_heads(nn.Sequential(nn.Linear(8, 9), nn.ReLU(), nn.Linear(9, 3)))

    with pytest.raises(ValueError, match="ncm predicts with one output layer for all tasks"):
        learner_of(heads, NCM())
    with pytest.raises(ValueError, match="strength"):
        RanPAC(strength=-1.0)
