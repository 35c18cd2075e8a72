"""Figures as objects of matplotlib: `record.plot.matrix()` and its like, to look at or to save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from ..markup import some
from ..report.colours import PALETTE
from ..report.drawing import Panel, curves, legend, name_ends, sheet
from ..report.figures import comparison_drawn, matrix_drawn, percents
from ..runs.record import Record
from .gates import gates_of_run, overlap

__all__ = ["ComparisonPlots", "RecordPlots"]

NAMED = 8  # curves that are told apart
SITES = (*PALETTE, "#117733", "#332288", "#aa4499")


class RecordPlots:
    """Figures of one run.

    Args:
        record: of the run.
    """

    def __init__(self, record: Record) -> None:
        if not record.accuracy:
            raise ValueError("No task was learned yet, so there is nothing to draw.")
        self.record = record

    def matrix(self) -> Any:
        """Accuracy on every task after learning each, in percent."""
        return matrix_drawn({self.record.name: percents(self.record)[None]})

    def curves(self) -> Any:
        """Accuracy on each task from when it was learned on; of many tasks, some."""
        values = percents(self.record)
        tasks = some(len(values), NAMED)
        found = {
            f"task {j + 1}": [(k + 1, values[k, j]) for k in range(j, len(values))] for j in tasks
        }
        shades = _in_order(list(found))
        panel = Panel(self.record.name, found, "tasks learned", "accuracy (%)")
        with sheet(1, None, across=1, width=5.4, height=3.2) as (figure, (axis,), _):
            curves(axis, panel, shades)
            known = {name: points for name, points in found.items() if np.isfinite(points[-1][1])}
            name_ends(axis, Panel("", known, "", ""), shades)
        return figure

    def availability(self) -> Any:
        """Mean availability of every site after each task, and the share of it that is frozen."""
        held = self.record.availability
        sites = list(held[-1]) if held else []
        if not sites:
            raise ValueError(f"{self.record.name} has no availabilities: its method has no gates.")
        colour = {f"site {site}": SITES[n % len(SITES)] for n, site in enumerate(sites)}
        panels = [
            Panel(
                title,
                {
                    f"site {site}": [
                        (k + 1, 100 * one[site][key]) for k, one in enumerate(held) if site in one
                    ]
                    for site in sites
                },
                "tasks learned",
                "%",
                limits=(0, 102),
            )
            for title, key in (("available", "room"), ("frozen", "frozen"))
        ]
        with sheet(2, None, across=2, width=3.1, height=2.6) as (figure, axes, _):
            for axis, panel in zip(axes, panels, strict=True):
                curves(axis, panel, colour)
                axis.set_ylim(0, 102)
            legend(figure, axes)
        return figure

    def gates(self) -> Any:
        """How far the open units of contexts overlap: those of both as a share of those of either."""
        folder: Path | None = self.record._folder
        gates = {} if folder is None else gates_of_run(folder)
        if not gates:
            raise ValueError(
                f"The gates of {self.record.name} are not there any more: they are in the last "
                "checkpoint beside a record that was loaded from its directory."
            )
        shared = overlap(np.concatenate(list(gates.values()), axis=1))
        return matrix_drawn({"overlap of contexts (%)": 100 * shared[None]}, "context")


class ComparisonPlots:
    """Figures of several methods.

    Args:
        records: by method, one for each seed.
    """

    def __init__(self, records: Mapping[str, Sequence[Record]]) -> None:
        self.records = records

    def matrix(self) -> Any:
        """The accuracy matrices side by side; means over seeds."""
        tables = {
            name: np.stack([percents(one) for one in runs]) for name, runs in self.records.items()
        }
        return matrix_drawn(tables)

    def curves(self) -> Any:
        """The matrices, and the mean accuracy over the tasks learned so far of every method."""
        return comparison_drawn(self.records, None)[0]


def _in_order(names: Sequence[str]) -> dict[str, str]:
    """Colours that go from dark to light, and are told apart on white."""
    from matplotlib import colormaps

    shades = colormaps["viridis"](np.linspace(0.0, 0.85, len(names)))
    return {name: to_hex(shade) for name, shade in zip(names, shades, strict=True)}
