"""A tracker that cannot harm a run: its first error is a warning, and its last call."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TypeVar

from ..storage.files import printable
from .tracker import Started, Tracker, TrackerWarning

__all__ = ["Careful"]

LONGEST = 200  # characters of an error that are told
Found = TypeVar("Found")


class Careful:
    """Calls a tracker until it fails.

    What it prints goes to standard error, since standard output holds results.

    Args:
        tracker: whatever it is.

    >>> class Broken:
    ...     name = "broken"
    ...     def start(self, run):
    ...         raise OSError("no route to host")
    >>> with warnings.catch_warnings(record=True) as told:
    ...     careful = Careful(Broken())
    ...     careful.start(Started("demo", "", {}, None, None))
    ...     careful.scalars({"loss": 1.0}, 1)
    >>> print(told[0].message)
    The tracker broken failed (no route to host): the run goes on without it.
    """

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.name, self.failed = tracker, tracker.name, False

    def start(self, run: Started) -> str | None:
        """The id of the run; None if there is none."""
        return self._tried(lambda: self.tracker.start(run))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Keep some figures at a step."""
        self._tried(lambda: self.tracker.scalars(values, step))

    def artefact(self, path: Path) -> None:
        """Keep a file."""
        self._tried(lambda: self.tracker.artefact(path))

    def end(self, finished: bool) -> None:
        """The run is over for now."""
        self._tried(lambda: self.tracker.end(finished))

    def _tried(self, call: Callable[[], Found]) -> Found | None:
        if self.failed:
            return None
        try:
            with redirect_stdout(sys.stderr):
                return call()
        except Exception as reason:  # whatever a library or a network comes up with
            self.failed = True
            told = printable(str(reason).strip().partition("\n")[0] or type(reason).__name__)
            warnings.warn(
                f"The tracker {self.name} failed ({told[:LONGEST]}): the run goes on without it.",
                TrackerWarning,
                stacklevel=3,
            )
            return None
