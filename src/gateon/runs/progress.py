"""Progress interface."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

__all__ = ["Progress", "Quiet", "Several"]


class Progress(Protocol):
    """Progress interface: what a run reports as it proceeds."""

    def begin(self, name: str, steps: Sequence[int], at: int) -> None:
        """A run starts, with the steps of each task, or continues after `at` steps in all."""

    def step(self, task: int, step: int, loss: float) -> None:
        """A batch was learned."""

    def found(self, task: int, step: int, context: int, new: bool) -> None:
        """A context was inferred that differs from the one before, at a step counted from 0."""

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """A task was learned, and the tasks so far were measured."""

    def end(self) -> None:
        """The run is finished or was stopped."""


class Quiet:
    """Reports nothing."""

    def begin(self, name: str, steps: Sequence[int], at: int) -> None:
        """Nothing."""

    def step(self, task: int, step: int, loss: float) -> None:
        """Nothing."""

    def found(self, task: int, step: int, context: int, new: bool) -> None:
        """Nothing."""

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


class Several:
    """Reports to several, one after the other.

    Args:
        told: whom; all of them are told of the end, even if one of them fails.
    """

    def __init__(self, *told: Progress) -> None:
        self.told = told

    def begin(self, name: str, steps: Sequence[int], at: int) -> None:
        """A run starts, or continues."""
        for one in self.told:
            one.begin(name, steps, at)

    def step(self, task: int, step: int, loss: float) -> None:
        """A batch was learned."""
        for one in self.told:
            one.step(task, step, loss)

    def found(self, task: int, step: int, context: int, new: bool) -> None:
        """A context was inferred."""
        for one in self.told:
            one.found(task, step, context, new)

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """A task was learned and measured."""
        for one in self.told:
            one.task(task, name, accuracies, seconds)

    def end(self) -> None:
        """The run is finished or was stopped."""
        with ExitStack() as ends:
            for one in reversed(self.told):
                ends.callback(one.end)
