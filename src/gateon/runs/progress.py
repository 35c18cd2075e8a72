"""Who is told how a run goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Progress", "Quiet"]


class Progress(Protocol):
    """Who is told how a run goes."""

    def begin(self, name: str, steps: Sequence[int], at: int) -> None:
        """A run of so many steps for every task begins, or goes on after so many of them all."""

    def step(self, task: int, step: int, loss: float) -> None:
        """One batch was learned."""

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """A task was learned and the tasks so far measured."""

    def end(self) -> None:
        """The run is over, or was stopped."""


class Quiet:
    """Tells nobody."""

    def begin(self, name: str, steps: Sequence[int], at: int) -> None:
        """Nothing."""

    def step(self, task: int, step: int, loss: float) -> None:
        """Nothing."""

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""
