"""What a living model tells while it works."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Listener", "Silent"]


class Listener(Protocol):
    """Hears what goes on, and may be asked for a name."""

    def say(self, words: str) -> None:
        """A sentence."""

    def progress(self, what: str, done: int, total: int | None) -> None:
        """So much of it is done; None where nobody knows how much it is in all."""

    def name(self, suggestion: str) -> str:
        """How a new task is to be called."""


class Silent:
    """Hears everything, says nothing, and takes what is suggested."""

    def say(self, words: str) -> None:
        """Nothing."""

    def progress(self, what: str, done: int, total: int | None) -> None:
        """Nothing."""

    def name(self, suggestion: str) -> str:
        """The suggestion."""
        return suggestion
