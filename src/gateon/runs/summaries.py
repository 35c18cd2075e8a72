"""Figures of several runs of the same kind: mean and spread over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from .record import Record

__all__ = ["COLUMNS", "percent", "summarise"]

COLUMNS = {
    "continual_accuracy": "continual",
    "continual_macro_f1": "macro-F1",
    "immediate_accuracy": "immediate",
    "final_accuracy": "final",
    "forgetting_rate": "forgetting",
    "accuracy_deviation": "deviation",
}


def summarise(records: Mapping[str, Sequence[Record]]) -> dict[str, dict[str, tuple[float, float]]]:
    """Summarise the runs of every method over seeds.

    Args:
        records: By method, one record per seed.

    Returns:
        {method: {figure: (mean, standard deviation)}}, including the "seconds" of training.
    """
    table: dict[str, dict[str, tuple[float, float]]] = {}
    for method, runs in records.items():
        rows = [run.summary | {"seconds": sum(s["train"] for s in run.seconds)} for run in runs]
        known = [name for name in rows[0] if all(name in row for row in rows)]
        table[method] = {name: _mean_and_spread([row[name] for row in rows]) for name in known}
    return table


def percent(value: tuple[float, float] | None, seeds: int) -> str:
    """A share with its spread, in percent; a dash for None.

    >>> percent((0.9781, 0.0004), seeds=3), percent((0.9781, 0.0), seeds=1), percent(None, seeds=1)
    ('97.81 ± 0.04', '97.81', '-')
    """
    if value is None:
        return "-"
    mean = round(100 * value[0], 2) + 0.0  # turns -0.0 into 0.0
    return f"{mean:.2f} ± {100 * value[1]:.2f}" if seeds > 1 else f"{mean:.2f}"


def _mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
