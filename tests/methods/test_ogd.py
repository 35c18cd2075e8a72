"""OGD: the stored directions, and that no step goes along one of them."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from method_tools import SGD, end, forgets_less, learner_of, tiny_cnn, tiny_mlp
from torch import nn

from easy_tasks import batch, train
from gateon.anatomy.contextual import Contextual
from gateon.methods.ogd import OGD, extended
from gateon.methods.shared.calls import trainable
from rounding import assert_same, half_of_the_digits

pytestmark = pytest.mark.numeric


def vector(tensors):
    return torch.cat([t.detach().flatten() for t in tensors])


class Heads(Contextual):
    def __init__(self):
        super().__init__()
        self.trunk, self.heads = nn.Linear(8, 6), nn.ModuleList()

    @property
    def contexts(self):
        return len(self.heads)

    def add_context(self):
        self.heads.append(nn.Linear(6, 3))

    def forward(self, x):
        return self.heads[self.context](x)


@pytest.mark.parametrize("network", [tiny_mlp, tiny_cnn])
def test_every_update_is_orthogonal_to_every_stored_gradient(network):
    learner = learner_of(network, OGD(memory=12), SGD)
    model, stored = learner.model, []
    for task in range(3):
        for s in range(4):
            before = vector(trainable(model).values())
            learner.observe(*batch(task, seed=s), context=task)
            step = vector(trainable(model).values()) - before
            assert step.norm() > 0
            for direction in stored:
                assert (
                    abs(step @ direction)
                    < half_of_the_digits(step.dtype) * step.norm() * direction.norm()
                )
        x, y = batch(task, 12)
        model.eval()
        for n in range(12):  # the true class's logit of one sample at a time
            gradients = torch.autograd.grad(
                model(x[n : n + 1])[0, y[n]], list(trainable(model).values())
            )
            stored.append(vector(gradients))
        model.train()
        learner.end_task(task, [(x, y)])
    rows = learner.method.basis
    assert len(rows) == len(stored)
    assert_same(rows @ rows.T, torch.eye(len(rows)))


def test_to_first_order_the_answers_to_stored_samples_stay():
    def drift(method):
        learner = learner_of(tiny_mlp, method, partial(torch.optim.SGD, lr=1e-3))
        train(learner, 0, 30)
        x, y = batch(0, 20)
        learner.end_task(0, [(x, y)])
        before = learner.predict(x)
        train(learner, 1, 10)
        return float((learner.predict(x) - before)[torch.arange(20), y].abs().max())

    assert drift(OGD(memory=20)) < 0.05 * drift(None)


def test_directions_that_add_nothing_are_left_out():
    rows = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    first = extended(
        torch.zeros(0, 40),
        torch.cat([rows, 2 * rows, rows.sum(0, keepdim=True), torch.zeros(1, 40)]),
    )
    assert len(first) == 5
    both = extended(first, torch.cat([rows[:2] * 3, torch.eye(40)[:3]]))
    assert len(both) == 8
    assert_same(both @ both.T, torch.eye(8))
    assert len(extended(torch.eye(40), rows)) == 40


def test_heads_of_single_tasks_are_trained_freely():
    def network():
        heads = Heads()
        return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), heads)

    learner = learner_of(network, OGD(memory=10), SGD)
    for task in range(2):
        train(learner, task, 4)
        end(learner, task)
    assert list(learner.method.shapes) == ["0.weight", "0.bias"]
    old = {name: p.detach().clone() for name, p in learner.model.named_parameters()}
    train(learner, 2, 3)
    after = dict(learner.model.named_parameters())
    assert all(torch.equal(after[name], p) for name, p in old.items() if "heads" in name)
    step = vector([after["0.weight"] - old["0.weight"], after["0.bias"] - old["0.bias"]])
    assert (
        step.norm() > 0
        and (learner.method.basis @ step).norm() < half_of_the_digits(step.dtype) * step.norm()
    )


def test_it_forgets_less_than_finetuning():
    assert forgets_less(OGD(memory=80), partial(torch.optim.SGD, lr=0.3))


@pytest.mark.parametrize(
    "optimizer",
    [
        torch.optim.Adam,
        partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        partial(torch.optim.SGD, lr=0.1, weight_decay=0.1),
    ],
)
def test_only_plain_sgd_follows_the_projected_gradient(optimizer):
    with pytest.raises(ValueError, match="plain SGD only"):
        learner_of(tiny_mlp, OGD(), optimizer)


@pytest.mark.parametrize("memory", [0, -3, None, 1.5])
def test_a_memory_that_cannot_be_is_refused(memory):
    with pytest.raises(ValueError, match="memory must be a whole number of at least 1"):
        OGD(memory=memory)


def test_no_data_and_changed_parameters_are_told_and_change_nothing():
    learner = learner_of(tiny_mlp, OGD(memory=5), SGD)
    train(learner, 0, 2)
    with pytest.raises(ValueError, match="Task 0 ended without data"):
        learner.end_task(0, iter(()))
    assert learner.method.basis is None
    end(learner, 0)
    learner.model.layers[5] = nn.Linear(24, 4)
    with pytest.raises(ValueError, match="layers"):
        learner.observe(*batch(1), context=1)


def test_a_row_that_adds_nothing_takes_no_later_one_with_it():
    rows = torch.eye(4)[[0, 0, 1, 2]]
    basis = extended(torch.zeros(0, 4), rows)
    torch.testing.assert_close(rows @ basis.T @ basis, rows)
    torch.testing.assert_close(basis @ basis.T, torch.eye(len(basis)))
