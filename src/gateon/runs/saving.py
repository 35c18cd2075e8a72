"""When a run is saved, and where: checkpoints that cost little of its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..parallel.processes import ALONE, Processes
from ..storage import checkpoint
from .folder import checkpoint_path, keep_only

__all__ = ["SAVE_EVERY", "SPARING", "Saver"]

SAVE_EVERY = 60.0  # seconds between checkpoints
# The next checkpoint comes after this many times what the last one took, so that they cost at most
# 2 % of the time.
SPARING = 50


class Saver:
    """Writes the checkpoints of a run; without a directory it only keeps the time.

    Args:
        folder: the directory of the run.
        every: seconds between checkpoints; None: as often as costs little.
        processes: that train together; the first of them keeps the time and writes.
        pinned: a checkpoint to keep meanwhile: that of the finished run being extended.
    """

    def __init__(
        self,
        folder: Path | None,
        every: float | None,
        processes: Processes = ALONE,
        pinned: Path | None = None,
    ) -> None:
        self.folder, self.every, self.processes, self.pinned = folder, every, processes, pinned
        self.last: Path | None = None  # the last whole checkpoint
        self._saved, self._took = time.monotonic(), 0.0

    def is_due(self, *, after_task: bool = False, stop: bool = False) -> bool:
        """Whether it is time for a checkpoint, or any process is to stop; the same in all."""
        return self.processes.any(stop or (self.processes.is_first and self._is_time(after_task)))

    def _is_time(self, after_task: bool) -> bool:
        least = self.every
        if least is None:
            least = max(0.0 if after_task else SAVE_EVERY, SPARING * self._took)
        return time.monotonic() - self._saved > least

    def save(self, state: Callable[[], Mapping[str, Any]], task: int, step: int) -> None:
        """Write a checkpoint of the state, and keep it, the one before, and the pinned one."""
        start = time.monotonic()
        self.processes.first(lambda: self._write(state(), task, step))
        self.rest(time.monotonic() - start)

    def _write(self, state: Mapping[str, Any], task: int, step: int) -> None:
        assert self.folder is not None
        path = checkpoint_path(self.folder, task, step)
        checkpoint.save(state, path)
        keep_only(self.folder, [path, self.last or path, self.pinned or path])
        self.last = path

    def rest(self, took: float) -> None:
        """Count from now on; the last checkpoint took so many seconds."""
        self._saved, self._took = time.monotonic(), took
