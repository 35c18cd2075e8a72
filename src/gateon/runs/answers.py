"""What a trained model says about samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["COLUMNS", "Answer", "Answers"]

COLUMNS = ("label", "probability", "task", "certainty", "known")


@dataclass(frozen=True)
class Answer:
    """What a model says about one sample.

    Args:
        label: the likeliest.
        probability: of that label.
        task: that the sample belongs to.
        certainty: of the task, from 0 to 1.
        known: whether the sample looks like any task that was learned.
    """

    label: str
    probability: float
    task: str
    certainty: float
    known: bool


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model says about samples, column by column; a loop over it gives `Answer`s.

    Args:
        labels: the likeliest label of each.
        probabilities: of that label.
        tasks: the task of each; empty where the network is the same in all.
        certainty: of that task, from 0 to 1; 1 where it was told.
        known: whether each looks like any task that was learned; true if that cannot be told.

    >>> answers = Answers(["card"], np.array([0.9]), ["banking"], np.array([1.0]), np.array([True]))
    >>> next(iter(answers)).label, len(answers)
    ('card', 1)
    """

    labels: list[str]
    probabilities: NDArray[np.float64]
    tasks: list[str]
    certainty: NDArray[np.float64]
    known: NDArray[np.bool_]

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.labels)

    def __iter__(self) -> Iterator[Answer]:
        """One answer after another."""
        columns = (self.probabilities.tolist(), self.certainty.tolist(), self.known.tolist())
        probabilities, certainty, known = columns
        return map(Answer, self.labels, probabilities, self.tasks, certainty, known)
