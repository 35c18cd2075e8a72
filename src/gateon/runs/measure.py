"""What is measured of a learner after a task: accuracy and macro-F1, open gates, availability."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..availability.obstruct import obstruction_of
from ..gating.gates import gates_of
from ..learners.protocol import AnyLearner
from ..streams import Split, Stream
from . import metrics
from .plan import Part

__all__ = ["look_inside", "scores"]

NUMBERS = 1 << 21  # inputs evaluated at once: activities of convolutions are many times larger
TEXTS = 64  # texts evaluated at once
IMAGES = 2000  # other samples evaluated at once


def scores(
    learner: AnyLearner, stream: Stream, task: int, context: int, part: Part
) -> tuple[float, float]:
    """Accuracy and macro-F1 of a learner on a task, in a context."""
    split = stream.split(task, part)
    if not len(split):
        raise ValueError(f"Task {task + 1} of {stream.name} has no {part} data to measure on.")
    rows = _portions(split, math.prod(stream.shape))
    predicted = torch.cat([learner.predict(split.x[i], context=context).argmax(1) for i in rows])
    y = split.y[torch.cat(rows)]
    accuracy = (predicted == y).double().mean().item()
    classes = max(stream.classes, int(predicted.max()) + 1)
    return accuracy, metrics.macro_f1(y, predicted, classes)


def look_inside(
    model: nn.Module, context: int
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """The share of open gates by site, and what is frozen and what is free there."""
    gates = gates_of(model)
    if gates is None:
        return {}, {}
    opened = {site: (gain > 0).float().mean().item() for site, gain in gates.gain(context).items()}
    handle = obstruction_of(gates)
    found = {} if handle is None else handle.saturation()
    return opened, {site: {"frozen": one.frozen, "room": one.room} for site, one in found.items()}


def _portions(split: Split, inputs: int) -> tuple[Tensor, ...]:
    """Rows that are evaluated together: even portions; texts of one length, to pad little."""
    if split.lengths is not None:
        alike: tuple[Tensor, ...] = split.lengths.argsort(stable=True).split(TEXTS)
        return alike
    at_once = max(1, min(IMAGES, NUMBERS // inputs))
    return torch.arange(len(split)).chunk(math.ceil(len(split) / at_once))
