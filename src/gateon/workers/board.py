"""Progress interface for all pieces of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["Board", "NoBoard"]


class Board(Protocol):
    """Shows a plan while it is carried out."""

    def open(self, pieces: int) -> None:
        """The plan begins; it has this many pieces."""

    def told(self, name: str, event: str, told: Sequence[Any]) -> None:
        """A piece reported by a call of `Progress`."""

    def ended(self, name: str, how: str) -> None:
        """A piece is over: done, dropped, stopped, busy, failed or died."""

    def note(self, text: str) -> None:
        """Something that concerns the whole plan."""

    def close(self) -> None:
        """The plan is over."""


class NoBoard:
    """Shows nothing."""

    def open(self, pieces: int) -> None:
        """Nothing."""

    def told(self, name: str, event: str, told: Sequence[Any]) -> None:
        """Nothing."""

    def ended(self, name: str, how: str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
