"""LwF: the distillation it adds, with one head and with one for every task."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from method_tools import accuracies, end, finetuned, learner_of, tiny_cnn, tiny_mlp
from test_ogd import Heads
from torch import nn

from easy_tasks import batch, train
from gateon.methods.lwf import LwF

pytestmark = pytest.mark.numeric


def distilled(student, teacher, T):
    """-sum_c q_c log p_c with q_c = y_c^(1/T) / sum y^(1/T), as printed."""
    q, p = (z.softmax(1) ** (1 / T) for z in (teacher, student))
    q, p = (a / a.sum(1, keepdim=True) for a in (q, p))
    return -(q * p.log()).sum(1).mean()


@pytest.mark.parametrize("network", [tiny_mlp, tiny_cnn])
def test_the_loss_is_the_published_one(network):
    learner = learner_of(network, LwF(strength=0.7, temperature=3.0))
    train(learner, 0, 10)
    end(learner, 0)
    old = copy.deepcopy(learner.model).eval()
    train(learner, 1, 5)
    x, y = batch(1, seed=7)
    generator = torch.get_rng_state()
    student = copy.deepcopy(learner.model).train()(x)
    torch.set_rng_state(generator)  # dropout draws the same again
    expected = F.cross_entropy(student, y) + 0.7 * distilled(student, old(x), 3.0)
    assert learner.forward(x, y)[0].item() == pytest.approx(expected.item(), rel=1e-5)


def test_nothing_is_added_in_the_first_task():
    learner, plain = learner_of(tiny_mlp, LwF()), learner_of(tiny_mlp, None)
    assert train(learner, 0, 5) == train(plain, 0, 5)


def test_old_heads_answer_as_they_did():
    def network():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), Heads())

    learner = learner_of(network, LwF(strength=0.5))
    for task in range(2):
        train(learner, task, 5)
        end(learner, task)
    learner.observe(*batch(2), context=2)
    old = learner.method.teacher
    x, y = batch(2, seed=3)
    expected = F.cross_entropy(learner.model(x), y)
    for head in range(2):
        then = F.linear(
            torch.tanh(F.linear(x, old["0.weight"], old["0.bias"])),
            *(old[f"2.heads.{head}.{n}"] for n in ("weight", "bias")),
        )
        now = learner.model[2].heads[head](torch.tanh(learner.model[0](x)))
        assert not torch.equal(then, now)
        expected = expected + 0.5 * distilled(now, then, 2.0)
    assert learner.forward(x, y)[0].item() == pytest.approx(expected.item(), rel=1e-5)
    assert learner.model[2].context == 2


def test_it_forgets_less_than_finetuning():
    # Only the task just before: on inputs as foreign as another permutation the answers it holds
    # fade with every further task.
    assert accuracies(LwF())[1][0] > finetuned()[1][0] + 0.05


@pytest.mark.parametrize("wrong", [{"strength": -1.0}, {"temperature": 0.0}, {"temperature": -2.0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LwF(**wrong)


def test_it_needs_no_data_and_names_a_parameter_that_changed():
    learner = learner_of(tiny_mlp, LwF())
    train(learner, 0, 2)
    learner.end_task(0, [])
    assert learner.method.teacher
    learner.model.layers[5] = nn.Linear(24, 4)
    with pytest.raises(ValueError, match="layers"):
        learner.observe(*batch(1), context=1)
