"""Optimizers, learning-rate schedules and losses by name; some are told of each task."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ConstantLR, LambdaLR, LRScheduler

from ..methods.base import Outline

__all__ = [
    "Loss",
    "Outline",
    "WeightedLoss",
    "optimizer_of",
    "released_loss",
    "schedule_of",
    "tell",
]

Kind = Literal["cosine", "linear", "constant"]
Loss = Callable[[Tensor, Tensor], Tensor]


def tell(outline: Outline, *things: Any) -> None:
    """Announce the next task to everything that has an `expect` method."""
    for thing in things:
        if hasattr(thing, "expect"):
            thing.expect(outline)


def optimizer_of(name: str, lr: float) -> Callable[[Any], Optimizer]:
    """A factory of optimizers by name.

    sgd has momentum 0.9 and plain has none; adamw decays weights by 0.01. Adam goes over its
    parameters once (`fused`), where torch would go over them once for every operation on a CPU.

    >>> optimizer_of("adamw", 1e-3)([torch.zeros(1, requires_grad=True)]).defaults["weight_decay"]
    0.01
    """
    if name == "sgd":
        return partial(torch.optim.SGD, lr=lr, momentum=0.9)
    if name == "plain":  # a projected gradient only works if it is followed unchanged
        return partial(torch.optim.SGD, lr=lr)
    if name == "adamw":
        return partial(torch.optim.AdamW, lr=lr, weight_decay=0.01, fused=True)
    return partial(torch.optim.Adam, lr=lr, fused=True)


def schedule_of(kind: Kind, steps: int, warm_up: float = 0.0) -> Callable[[Optimizer], LRScheduler]:
    """A factory of schedules for tasks of `steps` steps, or of the number that `expect` announces.

    Args:
        kind: cosine or linear, both to zero at the end of a task, or constant.
        steps: of a task.
        warm_up: share of them in which the rate rises from zero.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = schedule_of("linear", steps=5, warm_up=0.2)(optimizer)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(optimizer.param_groups[0]["lr"])
    ...     optimizer.step()
    ...     schedule.step()
    >>> [round(rate, 6) for rate in rates]
    [1.0, 0.8, 0.6, 0.4, 0.2]
    """
    return _constant if kind == "constant" and not warm_up else _Courses(kind, steps, warm_up)


@dataclass
class _Courses:
    """Builds the schedule of each task in turn."""

    kind: Kind
    steps: int
    warm_up: float

    def expect(self, outline: Outline) -> None:
        self.steps = outline.steps

    def __call__(self, optimizer: Optimizer) -> LRScheduler:
        return LambdaLR(optimizer, _Course(self.kind, self.steps, self.warm_up))


class _Course:
    """The rate at every step of a task; it starts over if the context continues."""

    def __init__(self, kind: Kind, steps: int, warm_up: float) -> None:
        self.kind, self.steps, self.warm_up = kind, steps, warm_up

    def __call__(self, step: int) -> float:
        step, rising = step % self.steps, math.ceil(self.warm_up * self.steps)
        if step < rising:
            return (step + 1) / rising
        risen = max(0, rising - 1)  # the last step of the rise is the first of the fall
        past, whole = step - risen, self.steps - risen
        return {
            "cosine": 0.5 + 0.5 * math.cos(math.pi * past / whole),
            "linear": 1 - past / whole,
            "constant": 1.0,
        }[self.kind]


def _constant(optimizer: Optimizer) -> LRScheduler:
    return ConstantLR(optimizer, factor=1.0, total_iters=0)


@dataclass
class WeightedLoss:
    """Cross-entropy in which all classes of a task count alike.

    sum_i w(y_i) L_i / sum_i w(y_i), w(c) = 1 / samples of class c. The counts are announced before
    each task. A class absent from the task, of which there may be stored samples, counts as one of
    average size; so do all classes before the first task.

    >>> loss = WeightedLoss(label_smoothing=0.0)
    >>> loss.expect(Outline(1, 1, counts=(3, 1)))
    >>> rare, frequent = loss.weight[1].item(), loss.weight[0].item()
    >>> round(rare / frequent, 4)
    3.0
    """

    label_smoothing: float
    weight: Tensor | None = field(default=None, init=False, repr=False, compare=False)

    def expect(self, outline: Outline) -> None:
        """Take the counts of the next task."""
        counts = torch.tensor(outline.counts, dtype=torch.float32)
        there = counts > 0
        self.weight = torch.where(there, counts.sum() / (there.sum() * counts.clamp_min(1)), 1.0)

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch."""
        weight = self.weight
        if weight is not None:
            weight = F.pad(weight, (0, outputs.shape[-1] - len(weight)), value=1.0).to(outputs)
        return F.cross_entropy(outputs, y, weight=weight, label_smoothing=self.label_smoothing)


def _twice_softmax(output: Tensor, y: Tensor) -> Tensor:
    """The released code's loss: cross-entropy, which applies softmax, of a softmax."""
    return F.cross_entropy(output.softmax(1), y)


released_loss: Loss = _twice_softmax
