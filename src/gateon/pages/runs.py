"""What a page says of runs and comparisons: which runs there are, and methods side by side."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from ..report.colours import PALETTE, colours
from ..runs.folder import checkpoints
from ..runs.record import Record
from ..runs.so_far import so_far
from .findings import of_comparison
from .gates import bytes_kept
from .one_run import facts_of_run, method_of, stream_of, trace_of
from .words import Facts, count, several

__all__ = ["MEASURES", "NothingError", "Run", "facts_of_runs", "found_runs"]

# Measure -> title, unit, which is best, and what it is.
MEASURES: dict[str, tuple[str, str, str, str]] = {
    "final_accuracy": (
        "at the end",
        "%",
        "max",
        "accuracy on all tasks after the last one, their mean",
    ),
    "continual_accuracy": (
        "continual",
        "%",
        "max",
        "accuracy of each task from its own training to the end of the stream (eq. 15)",
    ),
    "immediate_accuracy": (
        "just learned",
        "%",
        "max",
        "accuracy on each task right after it was learned; it falls as a network fills up",
    ),
    "forgetting_rate": (
        "forgetting",
        "points",
        "min",
        "just learned minus continual: what a task loses while others are learned",
    ),
    "accuracy_deviation": (
        "transfer",
        "points",
        "max",
        "just learned against networks that learned one task each, relative (eq. 16)",
    ),
    "continual_macro_f1": ("macro-F1", "%", "max", "continual macro-F1"),
    "seconds": ("training", "s", "min", "seconds of training, without measuring"),
    "bytes": (
        "kept",
        "bytes",
        "min",
        "what must be kept to go on with the next task: the network, and what the method remembers",
    ),
}


class NothingError(ValueError):
    """There is nothing to show yet."""

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__(
            f"{', '.join(map(str, folders))}: nothing to show here yet. Give the directory of a run, "
            "of a comparison, of a living model or of a reproduced table."
        )


@dataclass(frozen=True)
class Run:
    """A run that is over, or as far as it is.

    Args:
        folder: where it is.
        record: of the tasks learned so far.
        tasks: how many there will be.
        step: how many batches of the next task are learned.
    """

    folder: Path
    record: Record
    tasks: int
    step: int = 0

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return len(self.record.tasks) >= self.tasks


def facts_of_runs(folders: Sequence[Path]) -> Facts:
    """Everything a page shows of runs.

    Args:
        folders: of runs, or of comparisons.
    """
    runs = list(chain.from_iterable(found_runs(folder) for folder in folders))
    if not runs:  # but perhaps networks that learned alone, for the runs to come
        raise NothingError(folders)
    finished = [run for run in runs if run.is_finished]
    # Those at work have learned fewer tasks, and cannot be compared.
    methods = _methods(finished)
    traced = sum(trace_of(run.folder) is not None for run in runs)
    names = list(dict.fromkeys(stream_of(run.record) for run in runs))
    shown = {measure for method in methods for measure in method["measures"]}
    return {
        "kind": "runs",
        "title": ", ".join(names) if len(runs) > 1 else f"{names[0]}, {method_of(runs[0].record)}",
        "about": _about(runs, methods),
        "part": runs[0].record.part,
        "palette": PALETTE,
        "measures": [
            {"name": name, "title": title, "unit": unit, "best": best, "about": about}
            for name, (title, unit, best, about) in MEASURES.items()
            if name in shown or not methods
        ],
        "methods": methods,
        "findings": of_comparison(methods) if len(methods) > 1 else [],
        "waiting": [_waiting(run) for run in runs if not run.is_finished],
        "runs": [
            facts_of_run(run.folder, run.record, max(1, traced), len(runs), whole=run.is_finished)
            for run in runs
        ],
    }


def found_runs(folder: Path) -> list[Run]:
    """The runs in a directory or right below it, the best first, those at work last.

    Networks that learned alone are left out.
    """
    places = (
        [folder] if (folder / "record.json").exists() or checkpoints(folder) else _below(folder)
    )
    found = [run for place in places if (run := _run(place)) is not None]
    return sorted(found, key=lambda run: (not run.is_finished, -_final(run.record)))


def _below(folder: Path) -> list[Path]:
    return sorted(
        place
        for place in folder.iterdir()
        if place.is_dir() and not place.name.startswith(("isolated-", "."))
    )


def _run(folder: Path) -> Run | None:
    path = folder / "record.json"
    if path.exists():
        record = Record.load(path)
        return Run(folder, record, len(record.tasks))
    with suppress(OSError):
        part = so_far(folder)
        if part is not None:
            return Run(folder, part.record, part.tasks, part.step)
    return None


def _final(record: Record) -> float:
    last = [value for value in (record.accuracy or [[]])[-1] if value is not None]
    return statistics.fmean(last) if last else 0.0


def _about(runs: Sequence[Run], methods: Sequence[Facts]) -> str:
    tasks = {run.tasks for run in runs}
    seeds = {run.record.specification.get("seed", 0) for run in runs}
    length = f"{min(tasks)}" if len(tasks) == 1 else f"{min(tasks)} to {max(tasks)}"
    parts = [f"{length} {'task' if tasks == {1} else 'tasks'}"]
    names = {method_of(run.record) for run in runs}
    if len(runs) > 1:
        parts += [count(len(names), "method"), count(len(seeds), "seed")]
    else:
        parts.append(f"seed {next(iter(seeds))}")
    return ", ".join(parts) + f", measured on {runs[0].record.part} data."


def _waiting(run: Run) -> str:
    done = len(run.record.tasks)
    return f"{run.folder.name}: {done} of {count(run.tasks, 'task')} learned" + (
        f", {several(run.step, 'batch', 'batches')} of the next" if run.step else ""
    )


def _methods(runs: Sequence[Run]) -> list[Facts]:
    groups: dict[str, list[Run]] = {}
    streams = {stream_of(run.record) for run in runs}
    for run in runs:
        name = method_of(run.record)
        key = f"{name}, {stream_of(run.record)}" if len(streams) > 1 else name
        groups.setdefault(key, []).append(run)
    colour = colours(groups)
    used: dict[str, int] = {}
    methods = []
    for name, own in groups.items():
        dash = used[colour[name]] = used.get(colour[name], -1) + 1
        methods.append(
            {
                "name": name,
                "colour": colour[name],
                "dash": dash,
                "runs": [run.folder.name for run in own],
                "measures": _measures(own),
                "curve": _mean_curve([run.record for run in own]),
            }
        )
    return methods


def _measures(runs: Sequence[Run]) -> Facts:
    rows = [_row(run) for run in runs]
    known = [name for name in MEASURES if all(name in row for row in rows)]
    return {name: _spread([row[name] for row in rows]) for name in known}


def _row(run: Run) -> Mapping[str, Any]:
    kept = bytes_kept(run.folder)
    row = run.record.summary | {"seconds": sum(s["train"] for s in run.record.seconds)}
    return row if kept is None else row | {"bytes": kept}


def _spread(values: Sequence[float]) -> Facts:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    mean = statistics.fmean(values)
    return {"mean": mean, "spread": spread, "count": len(values), "each": list(values)}


def _mean_curve(records: Sequence[Record]) -> list[list[float]]:
    """(tasks learned, mean accuracy over them, spread over seeds), where all tasks were measured."""
    points = []
    for k in range(min(len(record.accuracy) for record in records)):
        rows = [[a for a in record.accuracy[k] if a is not None] for record in records]
        if all(len(row) == k + 1 for row in rows):
            found = _spread([statistics.fmean(row) for row in rows])
            points.append([k + 1, found["mean"], found["spread"]])
    return points
