"""What records say: a figure and whether something holds. Pure functions of the contents of records; None is "not measured"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .jobs import JOBS
from .make import read
from .show import entry_of, hidden, value

__all__ = [
    "Check",
    "Finding",
    "Found",
    "above",
    "all_of",
    "at_least",
    "best_row",
    "fall",
    "found_in",
    "leads",
    "ordered",
]

Found = Mapping[str, Mapping[str, Any]]  # job -> content of its record at one scale
GATEON = ("n-GateON", "p-GateON")


@dataclass(frozen=True)
class Finding:
    """Our figure, and whether it bears something out; None: not measured."""

    figure: str
    holds: bool | None


Check = Callable[[Found], Finding]
NOT_MEASURED = Finding("-", None)


def found_in(results: Path, scale: str) -> dict[str, Mapping[str, Any]]:
    """The records of all jobs at a scale, by job."""
    paths = {name: job.place(results, scale) / "record.json" for name, job in JOBS.items()}
    return {name: read(path) for name, path in paths.items() if path.exists()}


def number(
    found: Found,
    job: str,
    row: str,
    stream: str,
    measure: str = "continual_accuracy",
    column: str = "best",
) -> float | None:
    """One mean, in percent."""
    share = value(found[job], row, stream, measure, column) if job in found else None
    return None if share is None else 100 * share


def best_row(
    found: Found, job: str, stream: str, column: str = "best", rows: Sequence[str] = GATEON
) -> str | None:
    """The row with the highest continual accuracy."""
    known = {
        row: n for row in rows if (n := number(found, job, row, stream, column=column)) is not None
    }
    return max(known, key=lambda row: known[row]) if known else None


def at_least(
    job: str,
    stream: str,
    wanted: float,
    measure: str = "continual_accuracy",
    *,
    column: str = "best",
    rows: Sequence[str] = GATEON,
    at_most: bool = False,
) -> Check:
    """A measure of the best row must reach a number (or, with `at_most`, not exceed it)."""

    def check(found: Found) -> Finding:
        row = best_row(found, job, stream, column, rows)
        n = None if row is None else number(found, job, row, stream, measure, column)
        if row is None or n is None:
            return NOT_MEASURED
        entry = entry_of(found[job], row, column, stream)
        seeds = 0 if entry is None else len(entry["seeds"])
        shown = f"{round(n, 2) + 0.0:.2f} ({row}, {seeds} seed{'s' * (seeds != 1)})"
        return Finding(shown, n <= wanted if at_most else n >= wanted)

    return check


def above(
    job: str,
    pairs: Sequence[tuple[str, str]],
    measure: str,
    wanted: float,
    *,
    column: str = "best",
    below: bool = False,
) -> Check:
    """A measure exceeds a number (or stays below it) for every (row, stream)."""

    def check(found: Found) -> Finding:
        known = {
            p: n
            for p in pairs
            if (n := number(found, job, p[0], p[1], measure, column)) is not None
        }
        shown = ", ".join(
            f"{row} on {_short(stream)} {round(n, 2) + 0.0:.2f}"
            for (row, stream), n in known.items()
        )
        if len(known) < len(pairs):
            return Finding(shown or "-", None)
        return Finding(shown, all((n < wanted) if below else n > wanted for n in known.values()))

    return check


def ordered(
    job: str,
    stream: str,
    rows: Sequence[str],
    measure: str = "continual_accuracy",
    column: str = "best",
) -> Check:
    """The rows are in rising order of a measure; if some were run narrow, all are taken at that size."""

    def check(found: Found) -> Finding:
        content = found.get(job, {"rows": (), "entries": ()})
        narrow = [f"{row}, narrow" if f"{row}, narrow" in content["rows"] else row for row in rows]
        for labels in (rows, narrow):
            entries = [entry_of(content, label, column, stream) for label in labels]
            sizes = {hidden(entry) for entry in entries if entry is not None}
            numbers = [number(found, job, label, stream, measure, column) for label in labels]
            known = [n for n in numbers if n is not None]
            if len(known) == len(rows) and len(sizes) == 1:
                holds = all(a < b for a, b in pairwise(known))
                shown = [
                    f"{label} {round(n, 2) + 0.0:.2f}"
                    for label, n in zip(labels, known, strict=True)
                ]
                return Finding((" < " if holds else ", ").join(shown), holds)
        return NOT_MEASURED

    return check


def leads(job: str, stream: str, row: str, other: str, least: float, column: str = "best") -> Check:
    """The continual accuracy of a row less that of another is at least so many points."""

    def check(found: Found) -> Finding:
        ours, theirs = (number(found, job, one, stream, column=column) for one in (row, other))
        if ours is None or theirs is None:
            return NOT_MEASURED
        return Finding(
            f"{ours - theirs:+.2f} ({ours:.2f} against {theirs:.2f})", ours - theirs >= least
        )

    return check


def fall(found: Found, job: str, row: str, stream: str, column: str = "best") -> float | None:
    """Points by which immediate accuracy fell from the first tenth of the tasks to the last: saturation."""
    entry = entry_of(found[job], row, column, stream) if job in found else None
    if entry is None or "immediate" not in entry.get("series", {}):
        return None
    course = 100 * np.array(entry["series"]["immediate"]["mean"])
    tenth = max(1, len(course) // 10)
    return float(course[:tenth].mean() - course[-tenth:].mean())


def all_of(*checks: Check) -> Check:
    """Several findings as one: it holds if all do, and fails if one does."""

    def check(found: Found) -> Finding:
        findings = [one(found) for one in checks]
        verdicts = [finding.holds for finding in findings]
        holds = False if False in verdicts else None if None in verdicts else True
        return Finding(
            "; ".join(dict.fromkeys(f.figure for f in findings if f.figure != "-")) or "-", holds
        )

    return check


def _short(stream: str) -> str:
    return stream.removesuffix("-mnist")
