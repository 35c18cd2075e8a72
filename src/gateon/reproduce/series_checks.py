"""The checks that read courses over tasks and steps, or what a network looked like inside.

See `checks`, where they have their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .findings import NOT_MEASURED, Content, Finding, entry_of, fall, measured, together

__all__ = ["last_layer_shares", "neighbours_share", "saturation", "stays_frozen"]


@measured
def saturation(
    content: Content,
    streams: Sequence[str],
    falls: Sequence[str],
    stays: Sequence[str],
    points: float,
) -> Finding:
    """Immediate accuracy falls by more than so many points in some rows, and not in others."""

    def on(stream: str) -> Finding:
        found = {row: fall(content, row, stream) for row in (*falls, *stays)}
        known = {row: n for row, n in found.items() if n is not None}
        if len(known) < len(found):
            return NOT_MEASURED
        shown = ", ".join(f"{n:.2f} ({row})" for row, n in known.items())
        holds = all(known[row] > points for row in falls) and all(
            known[row] < points for row in stays
        )
        return Finding(f"immediate accuracy falls by {shown}", holds)

    return together(map(on, streams))


@measured
def neighbours_share(
    content: Content, streams: Sequence[str], row: str, column: str, more: float
) -> Finding:
    """The gates of neighbouring tasks are more correlated than those of others."""

    def on(stream: str) -> Finding:
        correlations = _correlations(content, row, column, stream)
        if correlations is None:
            return NOT_MEASURED
        tasks = np.arange(correlations.shape[-1])
        apart = np.abs(np.subtract.outer(tasks, tasks))
        close, far = (float(np.nanmean(correlations[:, w])) for w in (apart == 1, apart > 1))
        shown = f"mean correlation {close:.3f} of neighbours, {far:.3f} of others"
        return Finding(shown, close > far + more)

    return together(map(on, streams))


@measured
def last_layer_shares(
    content: Content, streams: Sequence[str], row: str, column: str, more: float
) -> Finding:
    """The gates of tasks are more correlated in the last hidden layer than in the first."""

    def on(stream: str) -> Finding:
        correlations = _correlations(content, row, column, stream)
        if correlations is None:
            return NOT_MEASURED
        others = ~np.eye(correlations.shape[-1], dtype=bool)
        first, last = (float(np.nanmean(correlations[layer][others])) for layer in (0, -1))
        shown = f"mean correlation {first:.3f} in the first layer, {last:.3f} in the last"
        return Finding(shown, last > first + more)

    return together(map(on, streams))


def _correlations(content: Content, row: str, column: str, stream: str) -> Any:
    entry = entry_of(content, row, column, stream)
    return None if entry is None else np.array(entry["series"]["correlation"]["mean"], dtype=float)


@measured
def stays_frozen(content: Content) -> Finding:
    """Units selective for task 2 lose availability in it and do not regain it in task 3."""
    if not content["entries"]:
        return NOT_MEASURED
    seen = content["entries"][0]["found"][0]
    steps, courses = len(seen["step"]) // seen["tasks"], seen["courses"]["availability"]
    selective, everyone = courses["selective for task 2"], courses["all"]
    before, after, end = selective[steps - 1], selective[2 * steps - 1], selective[-1]
    shown = (
        f"availability {before:.2f} before task 2, {after:.2f} after it, "
        f"{end:.2f} after task 3 (all units {everyone[-1]:.2f})"
    )
    return Finding(shown, after < before and end <= after)
