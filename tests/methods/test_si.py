"""SI: the path integral, the consolidation, and what it is for."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from method_tools import ADAM, SGD, end, forgets_less, learner_of, tiny_mlp
from torch import nn

import rounding
from easy_tasks import batch, train
from gateon.learners.learner import Learner
from gateon.methods.shared.calls import trainable
from gateon.methods.si import SI

pytestmark = pytest.mark.numeric


def quadratic_learner(method, optimizer):
    """One parameter vector in the loss 1/2 sum_i h_i theta_i^2: the input is thrown away."""

    class Bowl(nn.Module):
        def __init__(self):
            super().__init__()
            self.theta = nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))

        def forward(self, x):
            return self.theta

    h = torch.tensor([1.0, 0.3, 4.0], dtype=torch.float64)
    return Learner(
        Bowl(), optimizer=optimizer, method=method, loss=lambda theta, y: (h * theta**2).sum() / 2
    ), h


@pytest.mark.parametrize(
    "optimizer",
    [
        partial(torch.optim.SGD, lr=1e-3),
        partial(torch.optim.SGD, lr=2e-4, momentum=0.9),
        partial(torch.optim.Adam, lr=1e-3),
    ],
    ids=["sgd", "momentum", "adam"],
)
@pytest.mark.parametrize("tasks_before", [0, 1])
def test_the_path_integral_is_the_fall_of_the_loss_parameter_by_parameter(optimizer, tasks_before):
    # With a task before, the penalty pulls too; the integral must be of the task's loss alone.
    learner, h = quadratic_learner(SI(strength=0.5), optimizer)
    x = torch.zeros(1)
    for task in range(tasks_before):
        for _ in range(100):
            learner.observe(x, x, context=task)
        learner.end_task(task, [])
    theta = learner.model.theta
    start = theta.detach().clone()
    for _ in range(300):
        learner.observe(x, x, context=tasks_before)
    fall = h * (start**2 - theta.detach() ** 2) / 2
    assert (fall > 0).all()
    torch.testing.assert_close(learner.method.path["theta"], fall, rtol=6e-3, atol=0)


def test_the_path_of_a_network_is_that_of_a_literal_sum():
    learner = learner_of(tiny_mlp, SI(strength=2.0))
    train(learner, 0, 8)
    end(learner, 0)
    parameters = trainable(learner.model)
    path = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for s in range(6):
        x, y = batch(1, seed=s)
        gradients = torch.autograd.grad(
            F.cross_entropy(learner.model(x), y), list(parameters.values())
        )
        before = [p.detach().clone() for p in parameters.values()]
        learner.observe(x, y, context=1)
        for (name, p), g, then in zip(parameters.items(), gradients, before, strict=True):
            path[name] -= g * (p.detach() - then)
    for name, w in path.items():
        rounding.assert_same(learner.method.path[name], w)


def test_consolidation_is_the_published_formula():
    learner = learner_of(tiny_mlp, SI(strength=0.3, damping=0.05))
    expected = {name: torch.zeros_like(p) for name, p in trainable(learner.model).items()}
    for task in range(2):
        start = {name: p.detach().clone() for name, p in trainable(learner.model).items()}
        train(learner, task, 10)
        learner.method.path["layers.1.weight"][
            :2
        ] *= -1  # a path that went uphill counts for nothing
        for name, p in trainable(learner.model).items():
            w = learner.method.path[name]
            expected[name] += torch.clamp(w / ((p.detach() - start[name]) ** 2 + 0.05), min=0)
        end(learner, task)
    for name, Omega in expected.items():
        torch.testing.assert_close(learner.method.importance[name], Omega)
        assert not learner.method.path[name].any()
    learner.observe(*batch(2), context=2)
    method = learner.method
    parameters = trainable(learner.model)
    value = sum(
        (Omega * (parameters[name] - method.anchor[name]) ** 2).sum()
        for name, Omega in expected.items()
    )
    assert value > 0
    torch.testing.assert_close(method.value(learner.model), (0.3 * value).detach())


def test_the_penalty_pulls_with_its_gradient_after_the_tasks_own_was_read():
    learner = learner_of(tiny_mlp, SI(strength=0.3), SGD)
    train(learner, 0, 10)
    end(learner, 0)
    train(learner, 1, 2)
    model, method = learner.model, learner.method
    before = {name: p.detach().clone() for name, p in trainable(model).items()}
    path = {name: w.clone() for name, w in method.path.items()}
    for p in trainable(model).values():
        p.grad = torch.ones_like(p)
    learner.optimizer.step()
    for name, p in trainable(model).items():
        gradient = 1 + 2 * 0.3 * method.importance[name] * (before[name] - method.anchor[name])
        torch.testing.assert_close(p.detach(), before[name] - 0.1 * gradient)
        torch.testing.assert_close(method.path[name], path[name] - (p.detach() - before[name]))


def test_strength_zero_is_plain():
    learner, plain = learner_of(tiny_mlp, SI(strength=0.0)), learner_of(tiny_mlp, None)
    for one in (learner, plain):
        train(one, 0, 5)
        end(one, 0)
    assert train(learner, 1, 5) == train(plain, 1, 5)


@pytest.mark.parametrize("keep", [False, True])
def test_it_forgets_less_than_finetuning(keep):
    assert forgets_less(SI(strength=3.0), margin=0.03, keep_optimizer=keep)


def test_a_kept_optimizer_is_followed_once():
    learner = learner_of(tiny_mlp, SI(), keep_optimizer=True)
    train(learner, 0, 2)
    end(learner, 0)
    optimizer = learner.optimizer
    train(learner, 1, 2)
    assert learner.optimizer is optimizer and len(optimizer._optimizer_step_pre_hooks) == 1


@pytest.mark.parametrize(
    "wrong", [{"strength": -0.1}, {"strength": float("inf")}, {"damping": 0.0}, {"damping": -1.0}]
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SI(**wrong)


def test_a_task_without_data_is_no_matter_and_one_without_steps_adds_nothing():
    learner = learner_of(tiny_mlp, SI(), ADAM)
    learner.end_task(0, [])
    assert not any(Omega.any() for Omega in learner.method.importance.values())


def test_a_parameter_that_changed_its_shape_is_named_and_a_new_one_begins_where_it_is():
    learner = learner_of(tiny_mlp, SI())
    train(learner, 0, 2)
    end(learner, 0)
    learner.model.extra = nn.Linear(2, 2)
    train(learner, 1, 2)
    assert torch.equal(learner.method.anchor["extra.weight"], learner.model.extra.weight)
    learner.model.layers[5] = nn.Linear(24, 4)
    with pytest.raises(ValueError, match="layers"):
        learner.observe(*batch(2), context=2)
