"""How well inferred contexts follow the tasks: pure functions of what a record keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Found", "compared"]


@dataclass(frozen=True)
class Found:
    """What a detector found, against what was presented.

    Args:
        switches: how many there were: tasks that are another one than the task before.
        missed: how many of them were not noticed.
        delays: for each that was, how many batches of the new task it took, that of the detection
            included.
        false_alarms: switches found where there was none.
        returns: how many tasks came back after others.
        recognised: how many of them were learned again in the context they had ended in.
        collapses: tasks that were new, but learned in a context that another task had ended in.
    """

    switches: int
    missed: int
    delays: list[int]
    false_alarms: int
    returns: int
    recognised: int
    collapses: int


def compared(
    identities: Sequence[int], contexts: Sequence[int], switches: Sequence[Sequence[int]]
) -> Found:
    """Compare the switches a detector found with those of the stream.

    Args:
        identities: which task each presented one is; one that returns has the number it had before.
        contexts: the context each task ended in.
        switches: [task, step, context] of each switch found, counted from 0.

    >>> compared([0, 1, 0], [0, 1, 0], [[1, 2, 1], [2, 0, 0], [2, 40, 1], [2, 60, 0]])
    Found(switches=2, missed=0, delays=[3, 1], false_alarms=2, returns=1, recognised=1, collapses=0)
    """
    if len(identities) != len(contexts):
        raise ValueError(
            f"There are {len(identities)} tasks and {len(contexts)} contexts: "
            "give one for each task."
        )
    delays, false_alarms, missed, returns, recognised, collapses = [], 0, 0, 0, 0, 0
    ended: dict[int, int] = {}  # the context each task ended in last
    for task, (identity, context) in enumerate(zip(identities, contexts, strict=True)):
        steps = [step for where, step, _ in switches if where == task]
        other = task > 0 and identity != identities[task - 1]
        if other and steps:
            delays.append(steps[0] + 1)
        missed += other and not steps
        false_alarms += len(steps) - (other and bool(steps))
        if other and identity in ended:
            returns += 1
            recognised += ended[identity] == context
        elif other:
            collapses += context in ended.values()
        ended[identity] = context
    return Found(len(delays) + missed, missed, delays, false_alarms, returns, recognised, collapses)
