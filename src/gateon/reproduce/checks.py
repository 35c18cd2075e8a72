"""The checks that decide claims and targets, by the names used in the files of `tables/`.

Each reads the content of one table's record, None if there is none. Its other arguments are the
keys of the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from .findings import (
    GATEON,
    NOT_MEASURED,
    Content,
    Finding,
    best_row,
    entry_of,
    hidden,
    measured,
    number,
    short,
    together,
)
from .series_checks import last_layer_shares, neighbours_share, saturation, stays_frozen

__all__ = ["CHECKS", "wanted_words"]

ACCURACY = "continual_accuracy"


@measured
def at_least(
    content: Content,
    streams: Sequence[str],
    wanted: float,
    measure: str = ACCURACY,
    column: str = "best",
    rows: Sequence[str] = GATEON,
) -> Finding:
    """A measure of the row with the best continual accuracy reaches a number."""
    return together(
        _bounded(content, stream, measure, column, rows, lambda n: n >= wanted)
        for stream in streams
    )


@measured
def at_most(
    content: Content,
    streams: Sequence[str],
    wanted: float,
    measure: str = ACCURACY,
    column: str = "best",
    rows: Sequence[str] = GATEON,
) -> Finding:
    """A measure of the row with the best continual accuracy does not exceed a number."""
    return together(
        _bounded(content, stream, measure, column, rows, lambda n: n <= wanted)
        for stream in streams
    )


def _bounded(
    content: Content,
    stream: str,
    measure: str,
    column: str,
    rows: Sequence[str],
    within: Callable[[float], bool],
) -> Finding:
    row = best_row(content, stream, column, rows)
    found = None if row is None else number(content, row, stream, measure, column)
    if row is None or found is None:
        return NOT_MEASURED
    entry = entry_of(content, row, column, stream)
    seeds = 0 if entry is None else len(entry["seeds"])
    return Finding(f"{_shown(found)} ({row}, {seeds} seed{'s' * (seeds != 1)})", within(found))


@measured
def above(
    content: Content,
    streams: Sequence[str],
    rows: Sequence[str],
    measure: str,
    wanted: float,
    column: str = "best",
) -> Finding:
    """A measure exceeds a number in every row and stream."""
    return _all(content, streams, rows, measure, column, lambda n: n > wanted)


@measured
def below(
    content: Content,
    streams: Sequence[str],
    rows: Sequence[str],
    measure: str,
    wanted: float,
    column: str = "best",
) -> Finding:
    """A measure stays below a number in every row and stream."""
    return _all(content, streams, rows, measure, column, lambda n: n < wanted)


def _all(
    content: Content,
    streams: Sequence[str],
    rows: Sequence[str],
    measure: str,
    column: str,
    holds: Callable[[float], bool],
) -> Finding:
    places = [(row, stream) for row in rows for stream in streams]
    found = {place: number(content, *place, measure, column) for place in places}
    known = {place: n for place, n in found.items() if n is not None}
    shown = ", ".join(f"{row} on {short(stream)} {_shown(n)}" for (row, stream), n in known.items())
    if len(known) < len(places):
        return Finding(shown or "-", None)
    return Finding(shown, all(map(holds, known.values())))


@measured
def ahead(
    content: Content,
    streams: Sequence[str],
    row: str,
    other: str,
    points: float,
    column: str = "best",
) -> Finding:
    """The continual accuracy of a row less that of another is at least so many points."""

    def on(stream: str) -> Finding:
        ours, theirs = (number(content, one, stream, column=column) for one in (row, other))
        if ours is None or theirs is None:
            return NOT_MEASURED
        lead = ours - theirs
        return Finding(f"{lead:+.2f} ({ours:.2f} against {theirs:.2f})", lead >= points)

    return together(map(on, streams))


@measured
def rising(
    content: Content,
    streams: Sequence[str],
    rows: Sequence[str],
    measure: str = ACCURACY,
    column: str = "best",
) -> Finding:
    """The rows are in rising order; if some were run narrow, all are compared at that size."""
    has = content["rows"]
    narrow = [f"{row}, narrow" if f"{row}, narrow" in has else row for row in rows]

    def on(stream: str) -> Finding:
        for labels in (rows, narrow):
            entries = [entry_of(content, label, column, stream) for label in labels]
            sizes = {hidden(entry) for entry in entries if entry is not None}
            numbers = [number(content, label, stream, measure, column) for label in labels]
            known = [n for n in numbers if n is not None]
            if len(known) == len(rows) and len(sizes) == 1:
                holds = all(a < b for a, b in pairwise(known))
                shown = [f"{label} {_shown(n)}" for label, n in zip(labels, known, strict=True)]
                return Finding((" < " if holds else ", ").join(shown), holds)
        return NOT_MEASURED

    return together(map(on, streams))


@measured
def near(
    content: Content, streams: Sequence[str], other: str, points: float, column: str = "best"
) -> Finding:
    """The best row of GateON is within so many points of another row.

    Where that was not run, the accuracy deviation counts: some tasks were also learned alone.
    """

    def on(stream: str) -> Finding:
        row = best_row(content, stream, column)
        ours = None if row is None else number(content, row, stream, column=column)
        if row is None or ours is None:
            return NOT_MEASURED
        theirs = number(content, other, stream, column=column)
        if theirs is not None:
            shown = f"{short(stream)} {ours:.2f} against {theirs:.2f}"
            return Finding(shown, abs(ours - theirs) < points)
        deviation = number(content, row, stream, "accuracy_deviation", column)
        if deviation is None:
            return NOT_MEASURED
        shown = f"{short(stream)}: accuracy deviation {deviation:+.2f}"
        return Finding(shown, abs(deviation) < points)

    return together(map(on, streams))


@measured
def first_without_replay(
    content: Content, streams: Sequence[str], apart: Sequence[str], column: str = "best"
) -> Finding:
    """The best row of GateON leads all that store no data and share one head, but for `apart`."""

    def on(stream: str) -> Finding:
        rivals = {
            entry["row"]: 100 * entry["measures"][ACCURACY]["mean"]
            for entry in content["entries"]
            if entry["stream"] == stream
            and entry["measures"]
            and not (entry["replay"] or entry.get("heads") or entry["row"] in (*apart, *GATEON))
        }
        mine = best_row(content, stream, column)
        ours = None if mine is None else number(content, mine, stream, column=column)
        if ours is None or not rivals:
            return NOT_MEASURED
        best = max(rivals, key=lambda row: rivals[row])
        shown = f"{short(stream)}: {mine} {ours:.2f}, {best} {rivals[best]:.2f}"
        return Finding(shown, ours > rivals[best])

    return together(map(on, streams))


@measured
def among_the_best(
    content: Content,
    streams: Sequence[str],
    row: str,
    count: int,
    apart: Sequence[str],
    column: str = "best",
) -> Finding:
    """A row is one of the `count` best of at least three, not counting `apart`."""

    def on(stream: str) -> Finding:
        rows = [one for one in content["rows"] if one not in apart]
        found = {one: number(content, one, stream, column=column) for one in rows}
        known = {one: n for one, n in found.items() if n is not None}
        if row not in known or len(known) < 3:
            return NOT_MEASURED
        best = sorted(known, key=lambda one: -known[one])[:count]
        shown = ", ".join(f"{one} {known[one]:.2f}" for one in dict.fromkeys([*best, row]))
        return Finding(f"{stream}: {shown}", row in best)

    return together(map(on, streams))


@measured
def rows_alike(
    content: Content, streams: Sequence[str], rows: Sequence[str], points: float
) -> Finding:
    """The continual accuracies of rows differ by less than so many points, where all were run."""
    parts, holds = [], []
    for stream in streams:
        numbers = [number(content, row, stream) for row in rows]
        known = [n for n in numbers if n is not None]
        if len(known) == len(rows):
            parts.append(f"{short(stream)} " + ", ".join(f"{n:.2f}" for n in known))
            holds.append(max(known) - min(known) < points)
    if not parts:
        return NOT_MEASURED
    return Finding(f"{'; '.join(parts)} ({', '.join(rows)})", all(holds))


@measured
def columns_alike(
    content: Content, streams: Sequence[str], row: str, columns: Sequence[str], points: float
) -> Finding:
    """The continual accuracies of a row in two columns differ by less, where both were run."""
    parts, holds = [], []
    for stream in streams:
        numbers = {column: number(content, row, stream, column=column) for column in columns}
        known = {column: n for column, n in numbers.items() if n is not None}
        if len(known) == len(columns):
            shown = ", ".join(f"{n:.2f} {column}" for column, n in known.items())
            parts.append(f"{short(stream)} {shown}")
            holds.append(max(known.values()) - min(known.values()) < points)
    return Finding("; ".join(parts), all(holds)) if parts else NOT_MEASURED


CHECKS: Mapping[str, Callable[..., Finding]] = {
    "at least": at_least,
    "at most": at_most,
    "above": above,
    "below": below,
    "ahead": ahead,
    "rising": rising,
    "near": near,
    "first without replay": first_without_replay,
    "among the best": among_the_best,
    "rows alike": rows_alike,
    "columns alike": columns_alike,
    "saturation": saturation,
    "neighbours share": neighbours_share,
    "last layer shares": last_layer_shares,
    "stays frozen": stays_frozen,
}


def wanted_words(check: str, asked: Mapping[str, Any]) -> str:
    """What a target asks for, as its table shows it.

    >>> wanted_words("at most", {"wanted": 0.05}), wanted_words("ahead", {"points": 5.0})
    ('at most 0.05', '+5')
    """
    if check == "ahead":
        return f"{asked['points']:+g}"
    if "wanted" not in asked:
        return "yes"
    return f"{asked['wanted']:g}" if check == "at least" else f"{check} {asked['wanted']:g}"


def _shown(value: float) -> str:
    """With two digits, and no -0.00."""
    return f"{round(value, 2) + 0.0:.2f}"
