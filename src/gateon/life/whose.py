"""Rows without a task name: do they continue an old task, or begin a new one?

Two witnesses are asked about every old task. The recogniser says how many rows look like that task,
whatever their labels are. The detector says whether the task still explains the labels: a loss fits
if it has not risen by more than half of what was learned, from that of a guess (log of the number
of labels) to that of the held-out rows. Both must agree on an old task; else the task is new.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Verdict", "Witness", "judge"]

ALIKE = 0.5  # share of the rows that must look like a task for it to go on


@dataclass(frozen=True)
class Witness:
    """What is known about one old task.

    Args:
        task: its name.
        alike: share of the rows that are recognised as this task, and as known.
        labelled: share of the rows whose label the task has.
        loss: of those rows under the task; infinite if there are none.
        usual: loss of the task's held-out rows when it was learned.
        labels: of the task.
    """

    task: str
    alike: float
    labelled: float
    loss: float
    usual: float
    labels: int

    @property
    def limit(self) -> float:
        """The largest loss that fits."""
        guess = math.log(max(self.labels, 2))
        return self.usual + max(guess - self.usual, 0.1 * guess) / 2

    @property
    def fits(self) -> bool:
        """Whether labels are explained, and most rows look like the task."""
        return self.loss <= self.limit and self.alike >= ALIKE and self.labelled >= ALIKE


@dataclass(frozen=True)
class Verdict:
    """Whose the rows are.

    Args:
        task: the old task that goes on; None for a new one.
        certainty: from 0 to 1: how far the share of rows that look like the old task is from even.
        words: a sentence that says so.
    """

    task: str | None
    certainty: float
    words: str


def judge(witnesses: Sequence[Witness]) -> Verdict:
    """Decide from what is found about every old task.

    >>> judge([Witness("banking", 0.96, 1.0, 0.2, 0.1, 15)]).words
    "These rows go on with 'banking': 96% of them look like it, and their labels fit."
    >>> judge([Witness("banking", 0.02, 0.0, math.inf, 0.1, 15)]).words
    "These rows begin a new task: 2% of them look like 'banking', the closest of 1."
    """
    if not witnesses:
        return Verdict(None, 1.0, "These rows begin the first task.")
    closest = max(witnesses, key=lambda w: (w.fits, w.alike * w.labelled, w.alike))
    alike = f"{closest.alike:.0%} of them look like {closest.task!r}"
    if closest.fits:
        alike = f"{closest.alike:.0%} of them look like it"
        words = f"These rows go on with {closest.task!r}: {alike}, and their labels fit."
        return Verdict(closest.task, _certainty(closest.alike), words)
    if closest.alike < ALIKE:
        words = f"These rows begin a new task: {alike}, the closest of {len(witnesses)}."
        return Verdict(None, _certainty(closest.alike), words)
    why = (
        f"{closest.labelled:.0%} of them have one of its labels"
        if closest.labelled < ALIKE
        else f"its labels do not fit (loss {closest.loss:.2f}, at most {closest.limit:.2f} would)"
    )
    unlabelled = _certainty(min(closest.labelled, 0.5)) if closest.labelled < ALIKE else 0.5
    return Verdict(None, unlabelled, f"These rows begin a new task: {alike}, but {why}.")


def _certainty(share: float) -> float:
    return abs(2 * share - 1)
