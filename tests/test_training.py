"""Optimizers, schedules and losses by name, and that what is known of a task reaches them."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from gateon.learners.training import Outline, WeightedLoss, optimizer_of, schedule_of, tell


def rates(schedule, steps, expect=None):
    """The learning rate at every step."""
    if expect is not None:
        tell(Outline(expect, expect), schedule)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    course, seen = schedule(optimizer), []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        course.step()
    return seen


def test_a_cosine_falls_to_zero_within_a_task_and_begins_anew_if_the_context_goes_on():
    literal = [0.5 + 0.5 * math.cos(math.pi * (step % 4) / 4) for step in range(9)]
    assert rates(schedule_of("cosine", 4), 9) == literal


@pytest.mark.parametrize(
    ("kind", "warm_up", "seen"),
    [
        ("linear", 0.0, [1.0, 0.75, 0.5, 0.25, 1.0]),
        ("linear", 0.5, [0.5, 1.0, 2 / 3, 1 / 3, 0.5]),
        ("constant", 0.5, [0.5, 1.0, 1.0, 1.0, 0.5]),
        ("constant", 0.0, [1.0] * 5),
    ],
)
def test_the_rate_rises_for_a_share_of_the_task_and_then_falls(kind, warm_up, seen):
    assert rates(schedule_of(kind, 4, warm_up), 5) == pytest.approx(seen)


def test_a_schedule_that_is_told_of_another_length_follows_it():
    assert rates(schedule_of("linear", 4), 3, expect=2) == [1.0, 0.5, 1.0]


def test_a_course_goes_on_with_its_own_length_whatever_was_told_since():
    schedule = schedule_of("linear", 4)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    course = schedule(optimizer)
    optimizer.step()
    course.step()
    kept = course.state_dict()
    tell(Outline(10, 10), schedule)
    resumed = schedule(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0))
    resumed.load_state_dict(kept)
    resumed.step()
    assert resumed.get_last_lr() == [0.5]


def test_weighted_classes_count_alike_however_many_samples_they_have():
    loss, outputs = (
        WeightedLoss(0.0),
        torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0], [1.0, 0.0]]),
    )
    y = torch.tensor([0, 1, 1, 1])
    loss.expect(Outline(1, 1, counts=(1, 3)))
    each = F.cross_entropy(outputs, y, reduction="none")
    assert loss(outputs, y).item() == pytest.approx(((each[0] + each[1:].mean()) / 2).item())
    assert loss(outputs, y).item() != pytest.approx(each.mean().item())


def test_before_a_task_and_for_classes_it_lacks_the_loss_is_a_number():
    loss, outputs = WeightedLoss(0.1), torch.randn(4, 3)
    y = torch.tensor([2, 2, 2, 2])
    assert loss(outputs, y).item() == pytest.approx(
        F.cross_entropy(outputs, y, label_smoothing=0.1).item()
    )
    loss.expect(Outline(1, 1, counts=(5, 1)))
    assert math.isfinite(loss(outputs, y).item())
    assert repr(loss) == "WeightedLoss(label_smoothing=0.1)"


def test_adamw_decays_weights_and_adam_does_not():
    decays = {
        name: optimizer_of(name, 1e-3)([torch.zeros(1)]).defaults["weight_decay"]
        for name in ("adam", "adamw", "sgd", "plain")
    }
    assert decays == {"adam": 0, "adamw": 0.01, "sgd": 0, "plain": 0}


def test_those_who_ask_are_told_and_the_others_left_alone():
    class Asks:
        def expect(self, outline):
            self.told = outline

    asks, outline, others = Asks(), Outline(1, 1), (None, F.cross_entropy, object())
    tell(outline, *others, asks)
    assert asks.told is outline and not any(hasattr(one, "told") for one in others)
