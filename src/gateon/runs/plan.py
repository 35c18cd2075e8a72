"""The plan of a run: how much of each task is learned, and when it is measured and saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..streams import Stream

__all__ = ["Part", "Plan", "Schedule", "check_plan"]

LOSSES = 40  # of a task that are kept
Schedule = Literal["all", "last"]
Part = Literal["test", "validation"]


@dataclass(frozen=True)
class Plan:
    """What `run` was asked to do with the tasks of a stream.

    Args:
        steps: batches of every task.
        epochs: passes over the samples of a task, if they decide the steps.
        batch: samples in each.
        seed: of the order of the samples.
        evaluate: after which tasks all tasks so far are measured.
        curves: steps between measurements of the task being learned.
        save_every: seconds between checkpoints; None: as often as is cheap.
        keep: leave the last checkpoint beside the record.

    >>> plan = Plan([5, 5, 5], None, 20, 0, 2, None, None, True)
    >>> [plan.measures_all(task) for task in range(3)]
    [False, True, True]
    """

    steps: list[int]
    epochs: int | None
    batch: int
    seed: int
    evaluate: Schedule | int
    curves: int | None
    save_every: float | None
    keep: bool

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return len(self.steps)

    def measures_all(self, task: int) -> bool:
        """Whether all tasks so far are measured after a task, and not only its own."""
        if task == self.tasks - 1 or self.evaluate == "all":
            return True
        return isinstance(self.evaluate, int) and (task + 1) % self.evaluate == 0

    def keeps_loss(self, task: int, step: int) -> bool:
        """Whether the loss of a batch is kept where contexts are inferred: evenly spaced ones are."""
        return step % max(1, self.steps[task] // LOSSES) == 0


def check_plan(
    stream: Stream,
    steps: int,
    epochs: int | None,
    batch: int,
    evaluate: Schedule | int,
    curves: int | None,
    isolated: list[float] | None,
) -> None:
    """Validate the arguments of `run` before anything is done."""
    for name, value in (("steps", steps), ("epochs", epochs), ("batch", batch), ("curves", curves)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if evaluate not in ("all", "last") and not (isinstance(evaluate, int) and evaluate >= 1):
        raise ValueError(
            f'evaluate must be "all", "last" or a number of tasks of at least 1, got {evaluate!r}.'
        )
    if len(stream) < 1:
        raise ValueError("The stream has no task.")
    if isolated is not None and len(isolated) != len(stream):
        raise ValueError(
            f"isolated has {len(isolated)} accuracies for {len(stream)} tasks: "
            "give one for each task."
        )
