"""The tracker interface, and what a tracker is told when a run starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Started", "Tracker", "TrackerWarning"]


class TrackerWarning(RuntimeWarning):
    """A tracker failed, and the run goes on without it."""


@dataclass(frozen=True)
class Started:
    """A run that starts, or goes on.

    Args:
        name: of the run.
        group: what it belongs to, such as a comparison; empty if it stands alone.
        settings: what it was asked to do, by dotted name.
        folder: its directory, if it has one.
        id: by which the tracker knows it, if it goes on; None for a new one.
    """

    name: str
    group: str
    settings: Mapping[str, Any]
    folder: Path | None
    id: str | None


class Tracker(Protocol):
    """Keeps the figures of runs. It may raise whatever it likes: the run goes on without it."""

    @property
    def name(self) -> str:
        """By which it is known in the directory of a run."""

    def start(self, run: Started) -> str:
        """Begin a run, or go on with one; return the id by which it can go on later."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Keep some figures at a step, which never falls."""

    def artefact(self, path: Path) -> None:
        """Keep a file."""

    def end(self, finished: bool) -> None:
        """The run is finished, or was stopped and may go on later."""
