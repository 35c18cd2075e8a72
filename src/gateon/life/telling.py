"""What a living model reports while it works."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Listener", "Silent"]


class Listener(Protocol):
    """Receives messages and progress, and may be asked for a name."""

    def say(self, words: str) -> None:
        """A sentence."""

    def progress(self, what: str, done: int, total: int | None) -> None:
        """How much is done, and of how much; None if the total is unknown."""

    def name(self, suggestion: str) -> str:
        """The name for a new task."""


class Silent:
    """Ignores all messages, and accepts the suggested name."""

    def say(self, words: str) -> None:
        """Nothing."""

    def progress(self, what: str, done: int, total: int | None) -> None:
        """Nothing."""

    def name(self, suggestion: str) -> str:
        """The suggestion."""
        return suggestion
