"""Measuring every task again on the samples that were held out, after every lesson."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .asking import believed
from .knowledge import Knowledge
from .task import Task

__all__ = ["measure", "more_tasks", "unmeasured"]

FULL = 0.05  # share of a layer that is still available when it counts as full


def measure(knowledge: Knowledge, learned: str) -> None:
    """Note the accuracy of every task now; for the one just learned, it is also its `then`.

    Args:
        knowledge: whose tasks.
        learned: the task of the last lesson.
    """
    label_of = {
        row: label
        for part in knowledge.parts
        for row, label in zip(part.rows, part.labels, strict=True)
    }
    for task in list(knowledge.tasks):
        held = knowledge.held.get(task.name)
        if held is None or not len(held.x):
            continue
        labels = [label_of[row] for row in held.row.tolist()]
        told = believed(knowledge, held.x.float(), task)
        untold = believed(knowledge, held.x.float())
        now = told.right(labels)
        measured = replace(task, now=now, untold=untold.right(labels), held=len(labels))
        if task.name == learned:
            measured = replace(measured, then=now, loss=told.losses(labels).mean().item())
        knowledge.put(measured)


def unmeasured(knowledge: Knowledge) -> None:
    """Drop the `now` of tasks whose samples are not kept: it cannot be measured again."""
    for task in list(knowledge.tasks):
        if task.name not in knowledge.held:
            knowledge.put(replace(task, now=None, untold=None))


def more_tasks(room: Mapping[str, float], tasks: Sequence[Task]) -> int | None:
    """How many more tasks will fit if each takes the same share of what is left as before.

    With a share r left after T tasks each leaves r^(1/T) of what it finds; n more fit while
    r^(1 + n/T) > 1/20. None before anything was taken.

    >>> more_tasks({"first": 0.5}, [Task("a"), Task("b")])
    6
    """
    left = min(room.values(), default=1.0)
    if left >= 1 or not tasks:
        return None
    if left <= FULL:
        return 0
    return int(math.log(FULL / left) / (math.log(left) / len(tasks)))
