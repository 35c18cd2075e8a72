"""Progress interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Progress", "Quiet"]


class Progress(Protocol):
    """Progress interface: what a run reports as it proceeds."""

    def begin(self, name: str, steps: Sequence[int], at: int) -> None:
        """A run starts, with the steps of each task, or continues after `at` steps in all."""

    def step(self, task: int, step: int, loss: float) -> None:
        """A batch was learned."""

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

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""
