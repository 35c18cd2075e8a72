"""What a record and a comparison show of themselves in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..markup import block, some, table
from .record import Record
from .summaries import COLUMNS, percent, summarise

__all__ = ["comparison_html", "record_html"]

HEAVY = 0.3  # of accuracy: forgetting that is shaded fully


def record_html(record: Record) -> str:
    """The figures of a record, and its accuracy matrix shaded by what was forgotten.

    Args:
        record: of a run.
    """
    count = len(record.accuracy)
    if not count:
        return block(record.name, note="no task was learned yet")
    seconds = sum(one["train"] for one in record.seconds)
    note = f"{count} tasks, {record.part} data, percent; {seconds:.0f} s to train"
    summary = record.summary
    known = [name for name in COLUMNS if name in summary]
    figures = table(
        ["", *(COLUMNS[name] for name in known)],
        [["percent", *(percent((summary[name], 0.0), 1) for name in known)]],
    )
    if len(some(count)) < count:
        note += f"; {len(some(count))} of them are shown"
    return block(record.name, figures, _matrix(record), note=note)


def _matrix(record: Record) -> str:
    tasks = some(len(record.accuracy))
    rows, shades = [], {}
    for at, k in enumerate(tasks):
        row = [f"{k + 1}"]
        for n, j in enumerate(tasks[: at + 1], 1):
            value, learned = record.accuracy[k][j], record.accuracy[j][j]
            row.append("" if value is None else f"{100 * value:.1f}")
            if value is not None and learned is not None:
                shades[at, n] = max(0.0, learned - value) / HEAVY * 0.75
        rows.append(row)
    return table(["after task", *(f"{j + 1}" for j in tasks)], rows, shades)


def comparison_html(records: Mapping[str, Sequence[Record]]) -> str:
    """The table of a comparison: mean and spread over seeds.

    Args:
        records: by method, one for each seed.
    """
    summary, seeds = summarise(records), max(map(len, records.values()), default=0)
    names = [name for name in COLUMNS if any(name in row for row in summary.values())]
    rows = [
        [method, *(percent(row.get(name), seeds) for name in names), f"{row['seconds'][0]:.0f}"]
        for method, row in summary.items()
    ]
    spread = f"mean ± standard deviation of {seeds} seeds" if seeds > 1 else "one seed"
    titles = ["method", *(COLUMNS[name] for name in names), "seconds"]
    return block(f"{len(summary)} methods", table(titles, rows), note=f"percent, {spread}")
