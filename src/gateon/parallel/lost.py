"""What is raised when the processes that train together no longer do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["LostError", "RefusedError", "hearing"]


class LostError(RuntimeError):
    """Another process has ended or does not answer, in the middle of a step."""


class RefusedError(ValueError):
    """The first process has refused what was asked for, and says why."""


@contextmanager
def hearing() -> Iterator[None]:
    """A message to the other processes: that one of them is gone becomes a LostError."""
    try:
        yield
    except RuntimeError as reason:
        raise LostError(
            "Another process of this run has ended or does not answer. Checkpoints written before "
            "are whole: give the same command again to go on from there."
        ) from reason
