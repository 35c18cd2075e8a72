"""What is known of one task.

A task has a context of its own. It gets another when a lesson lacks most of the labels that a
context has: learning apart leaves the other labels as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Part", "Task"]


@dataclass(frozen=True)
class Part:
    """One context of a task.

    Args:
        context: of the network.
        labels: names, in the order in which they came.
        rows: the row of the output layer of each label.
    """

    context: int
    labels: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()

    def coverage(self, labels: set[str]) -> float:
        """The share of its labels that are among these."""
        return len(labels & set(self.labels)) / len(self.labels)


@dataclass(frozen=True)
class Task:
    """A task that was learned.

    Args:
        name: its name.
        parts: its contexts.
        samples: rows learned so far.
        lessons: how many times it was learned.
        begun: when it was learned first, ISO 8601.
        learned: when it was learned last.
        held: rows held out for measuring.
        then: accuracy on them right after it was learned last, with the task told; None if
            nothing was held out.
        now: the same after the last lesson of any task; None if it could not be measured again.
        untold: accuracy now with the task recognised.
        loss: of the held-out rows right after it was learned last.
    """

    name: str
    parts: tuple[Part, ...] = ()
    samples: int = 0
    lessons: int = 0
    begun: str = ""
    learned: str = ""
    held: int = 0
    then: float | None = None
    now: float | None = None
    untold: float | None = None
    loss: float | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """All its labels, in the order in which they came."""
        return tuple(dict.fromkeys(label for part in self.parts for label in part.labels))

    def state(self) -> dict[str, Any]:
        """What is kept, as JSON."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Task:
        """The task of this state."""
        parts = (
            Part(part["context"], tuple(part["labels"]), tuple(part["rows"]))
            for part in state["parts"]
        )
        return cls(**{**state, "parts": tuple(parts)})
