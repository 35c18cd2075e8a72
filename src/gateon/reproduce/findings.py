"""Numbers out of the record of a table. Pure functions of its content."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np

__all__ = [
    "GATEON",
    "NOT_MEASURED",
    "Content",
    "Finding",
    "best_row",
    "entry_of",
    "fall",
    "hidden",
    "measured",
    "number",
    "short",
    "together",
    "value",
]

Content = Mapping[str, Any]  # of a record.json
P = ParamSpec("P")
GATEON = ("n-GateON", "p-GateON")


@dataclass(frozen=True)
class Finding:
    """Our figure, and whether it confirms something; None: not measured."""

    figure: str
    holds: bool | None


NOT_MEASURED = Finding("-", None)


def measured(
    check: Callable[Concatenate[Content, P], Finding],
) -> Callable[Concatenate[Content | None, P], Finding]:
    """A check that is not measured where there is no record."""

    @wraps(check)
    def of_record(content: Content | None, /, *args: P.args, **options: P.kwargs) -> Finding:
        return NOT_MEASURED if content is None else check(content, *args, **options)

    return of_record


def entry_of(content: Content, row: str, column: str, stream: str) -> dict[str, Any] | None:
    """What was found in one place."""
    place = (row, column, stream)
    return next(
        (dict(e) for e in content["entries"] if (e["row"], e["column"], e["stream"]) == place), None
    )


def value(
    content: Content,
    row: str,
    stream: str,
    measure: str = "continual_accuracy",
    column: str = "best",
) -> float | None:
    """The mean in one place, as a share; None if there is none."""
    entry = entry_of(content, row, column, stream)
    found = None if entry is None else entry.get("measures", {}).get(measure)
    return None if found is None else float(found["mean"])


def number(
    content: Content,
    row: str,
    stream: str,
    measure: str = "continual_accuracy",
    column: str = "best",
) -> float | None:
    """The mean in one place, in percent."""
    share = value(content, row, stream, measure, column)
    return None if share is None else 100 * share


def best_row(
    content: Content, stream: str, column: str = "best", rows: Sequence[str] = GATEON
) -> str | None:
    """The row with the highest continual accuracy."""
    found = {row: number(content, row, stream, column=column) for row in rows}
    known = {row: n for row, n in found.items() if n is not None}
    return max(known, key=lambda row: known[row]) if known else None


def fall(content: Content, row: str, stream: str, column: str = "best") -> float | None:
    """Points by which immediate accuracy fell from the first tenth of the tasks to the last."""
    entry = entry_of(content, row, column, stream)
    if entry is None or "immediate" not in entry.get("series", {}):
        return None
    course = 100 * np.array(entry["series"]["immediate"]["mean"])
    tenth = max(1, len(course) // 10)
    return float(course[:tenth].mean() - course[-tenth:].mean())


def hidden(entry: Mapping[str, Any]) -> tuple[int, ...]:
    """Units of each hidden layer of an entry's network; none if it has no such layers."""
    return tuple(entry["settings"]["network"].get("hidden", ()))


def together(findings: Iterable[Finding]) -> Finding:
    """Several findings as one: it holds if all do, and fails if one does.

    >>> together([Finding("a", True), Finding("b", None)])
    Finding(figure='a; b', holds=None)
    """
    found = list(findings)
    verdicts = [finding.holds for finding in found]
    holds = False if False in verdicts else None if None in verdicts else True
    figures = dict.fromkeys(finding.figure for finding in found if finding.figure != "-")
    return Finding("; ".join(figures) or "-", holds)


def short(stream: str) -> str:
    """A stream as tables call it.

    >>> short("permuted-mnist")
    'permuted'
    """
    return stream.removesuffix("-mnist")
