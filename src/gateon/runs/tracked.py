"""What a run tells trackers, as it proceeds: each figure once, however often the run is stopped."""

from __future__ import annotations

import json
import statistics
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

from ..storage.checkpoint import whole_file
from ..storage.files import content_of
from ..tracking.careful import Careful
from ..tracking.choosing import TRACKERS, tracker_named
from ..tracking.scalars import site_scalars
from ..tracking.tracker import Started, Tracker, TrackerWarning
from .record import Record

__all__ = ["TRACKING", "Tracked", "held_trackers", "measured"]

TRACKING = "tracking.json"  # beside the record: who tracks the run, and how far
LARGEST = 1 << 20  # bytes of it
LEFT = ("record.json", "report.html")  # what trackers are handed
OFTEN = 0.5  # least seconds between two losses
KINDS = ("loss", "context", "task")


class Tracked:
    """Reports a run to trackers; a `Progress`.

    The axis of every figure is the number of batches learned so far in all tasks. How far each kind
    of figure was told is noted before it is told, so that a run that goes on from an earlier step
    tells nothing twice.

    Args:
        trackers: whom to tell.
        record: of the run; it grows meanwhile.
        folder: of the run, if it has one.
        inferred: whether contexts are inferred.
    """

    def __init__(
        self,
        trackers: Sequence[Tracker],
        record: Record,
        folder: Path | None,
        *,
        inferred: bool = False,
    ) -> None:
        self.trackers = [Careful(one) for one in trackers]
        self.record, self.folder = record, folder
        self.inferred = inferred
        self.held = {} if folder is None else _read(folder / TRACKING)
        self._losses: list[float] = []
        self._told = 0.0

    def begin(self, name: str, steps: Sequence[int], at: int) -> None:
        """Start the trackers, and tell them what was measured before they followed."""
        self.starts = list(accumulate(steps, initial=0))
        for one in self.trackers:
            known = self.held.get(one.name, {})
            settings, place = flat(self.record.specification), self.folder
            title, group = (name, "") if place is None else place.resolve().parts[:-3:-1]
            found = one.start(Started(title, group, settings, place, known.get("id")))
            if found is not None:
                self.held[one.name] = {"id": found, **{kind: known.get(kind, 0) for kind in KINDS}}
        self._write()
        for task in range(len(self.record.accuracy)):
            self._tell("task", self.starts[task + 1], measured(self.record, task))

    def step(self, task: int, step: int, loss: float) -> None:
        """Tell the mean loss of the batches since the last one told, now and then."""
        if step == 1 and (task == 0 or not self.inferred):
            context = float(self.record.contexts[task])
            self._tell("context", self.starts[task] + 1, {"context": context})
        self._losses.append(loss)
        at = self.starts[task] + step
        if time.monotonic() - self._told >= OFTEN or at == self.starts[task + 1]:
            self._tell("loss", at, {"loss": statistics.fmean(self._losses)})
            self._losses.clear()
            self._told = time.monotonic()

    def found(self, task: int, step: int, context: int, new: bool) -> None:
        """Tell a context that was inferred."""
        at = self.starts[task] + step + 1  # steps are counted from 0 there
        switches = float(len(self.record.switches))
        self._tell("context", at, {"context": float(context), "switches": switches})

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """Tell what was measured after a task."""
        self._tell("task", self.starts[task + 1], measured(self.record, task))

    def end(self) -> None:
        """Hand over what a finished run has left, and end."""
        finished = len(self.record.accuracy) == len(self.starts) - 1
        left = [] if self.folder is None or not finished else map(self.folder.joinpath, LEFT)
        files = [path for path in left if path.exists()]
        for one in self.trackers:
            for path in files:
                one.artefact(path)
            one.end(finished)

    def catch_up(self, steps: Sequence[int]) -> None:
        """Tell trackers that did not follow a finished run what its record has.

        Args:
            steps: of each task.
        """
        self.trackers = [one for one in self.trackers if one.name not in self.held]
        if self.trackers:
            self.begin(self.record.name, steps, sum(steps))
            self.end()

    def _tell(self, kind: str, at: int, values: Mapping[str, float]) -> None:
        due = [one for one in self.trackers if not one.failed and at > self.held[one.name][kind]]
        for one in due:
            self.held[one.name][kind] = at
        if due:
            self._write()
        for one in due:
            one.scalars(values, at)

    def _write(self) -> None:
        if self.folder is not None and self.held:
            # a directory that cannot be written is told of by what matters more
            with suppress(OSError), whole_file(self.folder / TRACKING) as aside:
                aside.write_text(json.dumps(self.held, indent=1) + "\n", encoding="utf-8")


def measured(record: Record, task: int) -> dict[str, float]:
    """The figures of a record after one of its tasks.

    Accuracy on every task, their mean, what was forgotten of each earlier task since it was learned
    (the mean of the losses), and by site how available its units are and what share is frozen.

    Args:
        record: of a run.
        task: counted from 0.

    >>> record = Record("demo", {}, {}, accuracy=[[1.0], [0.5, 0.75]])
    >>> record.availability = [{}, {"1": {"frozen": 0.25, "room": 0.5}}]
    >>> measured(record, 1)["forgetting"], measured(record, 1)["saturation/1"]
    (0.5, 0.25)
    >>> list(measured(record, 0))
    ['tasks', 'accuracy/task_1', 'mean_accuracy', 'forgetting']
    """
    known = {j: value for j, value in enumerate(record.accuracy[task]) if value is not None}
    found = {"tasks": task + 1.0}
    found |= {f"accuracy/task_{j + 1}": value for j, value in known.items()}
    lost = [(record.accuracy[j][j] or 0.0) - value for j, value in known.items() if j < task]
    if len(known) == task + 1:
        found["mean_accuracy"] = statistics.fmean(known.values())
        found["forgetting"] = statistics.fmean(lost) if lost else 0.0
    if task < len(record.availability):
        sites = record.availability[task].items()
        found |= site_scalars({name: (one["frozen"], one["room"]) for name, one in sites})
    return found


def held_trackers(folder: Path, asked: Sequence[Tracker]) -> list[Tracker]:
    """The trackers that followed the run in a directory before, without those asked for now.

    One that is no longer installed is left out with a warning.

    Args:
        folder: of the run.
        asked: the trackers asked for now.
    """
    found = []
    for name in _read(folder / TRACKING).keys() & TRACKERS.keys() - {one.name for one in asked}:
        try:
            found.append(tracker_named(name))
        except ImportError as reason:
            warnings.warn(f"{reason} The run goes on without it.", TrackerWarning, stacklevel=2)
    return found


def flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Settings by dotted name.

    >>> flat({"seed": 0, "training": {"lr": 0.1}})
    {'seed': 0, 'training.lr': 0.1}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Who tracks a run, and how far; nobody if there is no such file."""
    if not path.exists():
        return {}
    try:
        held = json.loads(content_of(path, LARGEST).decode())
        for one in held.values():
            if not isinstance(one["id"], str) or any(type(one[kind]) is not int for kind in KINDS):
                raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise ValueError(
            f"{path} does not say how far the run was tracked: move it away, and trackers begin "
            "a new run."
        ) from reason
    return dict(held)
