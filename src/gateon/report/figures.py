"""Figures of records, all in one style; every one is written as PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runs.record import Record
from .colours import PALETTE, colours
from .drawing import (
    FAINT,
    INK,
    QUIET,
    Panel,
    cells,
    curves,
    legend,
    name_ends,
    plain_ticks,
    sheet,
)

__all__ = [
    "Panel",
    "bars",
    "compare_figure",
    "comparison_drawn",
    "lines",
    "matrices",
    "matrix_drawn",
    "percents",
    "ranked",
]

MARKS = ("o", "s", "^", "D")
Place = tuple[float, float]  # a quantity and its spread over seeds


def compare_figure(records: Mapping[str, Sequence[Record]], path: Path) -> list[Path]:
    """Draw accuracy matrices side by side, and the mean accuracy over the tasks learned so far.

    Both are means over seeds; bands are the standard deviation.

    Args:
        records: By the name of the method, one for each seed.
        path: Without suffix.

    Returns:
        The files written, PNG and SVG.
    """
    return comparison_drawn(records, path)[1]


def comparison_drawn(
    records: Mapping[str, Sequence[Record]], path: Path | None
) -> tuple[Any, list[Path]]:
    """The same as a figure, written only if there is a path."""
    colour, count = colours(records), len(records)
    tables = {name: np.stack([percents(one) for one in runs]) for name, runs in records.items()}
    size: dict[str, Any] = {"across": min(4, count + 1), "width": 3.0, "height": 2.9}
    with sheet(count + 1, path, stretch=True, **size) as (figure, axes, written):
        for axis, (name, held) in zip(axes, tables.items(), strict=False):
            image = _matrix(axis, held.mean(axis=0), name, (0, 100), "viridis", ".0f")
            axis.set(xlabel="tested on task", ylabel="after learning task")
        figure.colorbar(image, ax=axes[:-1], shrink=0.7, label="accuracy (%)")
        panel = Panel(
            "mean over the tasks learned so far",
            {name: _course(held) for name, held in tables.items()},
            "tasks learned",
            "accuracy (%)",
        )
        curves(axes[-1], panel, colour)
        axes[-1].set_ylim(top=102)
        name_ends(axes[-1], panel, colour)
    return figure, written


def matrix_drawn(tables: Mapping[str, NDArray[Any]], of: str = "") -> Any:
    """A figure of matrices in percent, side by side; means over their first dimension.

    Args:
        tables: by title.
        of: what both axes count; by default tasks, as of accuracies.
    """
    size: dict[str, Any] = {"across": min(4, len(tables)), "width": 3.4, "height": 3.0}
    with sheet(len(tables), None, **size) as (figure, axes, _):
        for axis, (name, held) in zip(axes, tables.items(), strict=True):
            image = _matrix(axis, held.mean(axis=0), name, (0, 100), "viridis", ".0f")
            axis.set(xlabel=of or "tested on task", ylabel=of or "after learning task")
        figure.colorbar(image, ax=axes, shrink=0.7, label="%" if of else "accuracy (%)")
    return figure


def percents(record: Record) -> NDArray[Any]:
    """The accuracy matrix, NaN where a task was not measured."""
    size = len(record.accuracy)
    values = np.full((size, size), np.nan)
    for k, row in enumerate(record.accuracy):
        values[k, : len(row)] = [np.nan if a is None else 100 * a for a in row]
    return values


def _course(held: NDArray[Any]) -> list[tuple[float, ...]]:
    """(tasks learned, mean accuracy over them, spread over seeds); NaN where some are unknown."""
    means = held.mean(axis=2, where=np.tri(held.shape[1], dtype=bool))
    spread = means.std(axis=0, ddof=1) if len(held) > 1 else np.zeros(held.shape[1])
    return [(k + 1, means[:, k].mean(), spread[k]) for k in range(held.shape[1])]


def _matrix(
    axis: Any,
    values: NDArray[Any],
    title: str,
    limits: tuple[float, float],
    shades: str,
    form: str,
) -> Any:
    size = len(values)
    edges = (0.5, size + 0.5, size + 0.5, 0.5)  # tasks are counted from 1
    image = axis.imshow(values, vmin=limits[0], vmax=limits[1], cmap=shades, extent=edges)
    cells(axis, image, values, form)
    ticks = [*range(1, size + 1, max(1, -(-size // 10)))]
    axis.set(title=title, xticks=ticks, yticks=ticks)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return image


def bars(
    rows: Mapping[str, tuple[float, float, float]],
    label: str,
    path: Path,
    *,
    colour: Mapping[str, str] | None = None,
) -> list[Path]:
    """Draw one bar per row with its number, and a line at 1.

    Args:
        rows: By name, (middle, low, high).
        label: The label of the x-axis.
        path: Without suffix.
        colour: By name; one for all by default.

    Returns:
        The files written, PNG and SVG.
    """
    height = 0.9 + 0.24 * len(rows)
    with sheet(1, path, across=1, width=6.4, height=height) as (_, (axis,), written):
        names = list(rows)[::-1]
        middle, low, high = (np.array([rows[name][i] for name in names]) for i in range(3))
        error = (middle - low, high - middle)
        shown = [(colour or {}).get(name, PALETTE[0]) for name in names]
        style = {"color": shown, "ecolor": INK, "height": 0.62, "error_kw": {"linewidth": 0.9}}
        axis.barh(names, middle, xerr=error, **style)
        axis.axvline(1, color=QUIET, linewidth=0.8, linestyle=(0, (4, 2)))
        for place, (end, value) in enumerate(zip(high, middle, strict=True)):
            axis.annotate(
                f"{value:.2f}", (end, place), (4, 0), textcoords="offset points", va="center"
            )
        axis.set_xlabel(label)
        axis.margins(y=0.02)
        axis.tick_params(axis="y", length=0, labelcolor=INK)
    return written


def lines(
    panels: Sequence[Panel],
    path: Path,
    *,
    across: int | None = None,
    colour: Mapping[str, str] | None = None,
) -> list[Path]:
    """Draw curves in panels: named at their ends in one panel, below the figure in several.

    Args:
        panels: See `Panel`.
        path: Without suffix.
        across: The number of panels side by side; all by default.
        colour: By name of the curve; by default that of the method it names.

    Returns:
        The files written, PNG and SVG.
    """
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    colour = colours(names) if colour is None else colour
    across = across or len(panels)
    width, height = (5.4, 3.2) if len(panels) == 1 else (3.1, 2.5)
    drawing = sheet(len(panels), path, across=across, width=width, height=height)
    with drawing as (figure, axes, written):
        for axis, panel in zip(axes, panels, strict=True):
            curves(axis, panel, colour)
        _share_limits(axes, panels)
        for n, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
            if n % across and panels[n - 1].y == panel.y:
                axis.set_ylabel("")
                axis.tick_params(labelleft=False)
        if len(panels) == 1 and len(names) > 1:
            name_ends(axes[0], panels[0], colour)
        elif len(names) > 1:
            legend(figure, axes, list(colour))
    return written


def _share_limits(axes: Sequence[Any], panels: Sequence[Panel]) -> None:
    """Give panels of the same quantity the same limits."""
    for quantity in dict.fromkeys(panel.y for panel in panels):
        alike = [(a, p) for a, p in zip(axes, panels, strict=True) if p.y == quantity]
        found = [panel.limits or axis.get_ylim() for axis, panel in alike]
        for axis, _ in alike:
            axis.set_ylim(min(low for low, _ in found), max(high for _, high in found))


def matrices(
    panels: Mapping[str, Sequence[Sequence[float | None]]],
    label: str,
    what: str,
    path: Path,
    *,
    across: int,
) -> list[Path]:
    """Draw one square image per name, all with one scale of colours, around zero.

    The diagonal, which is 1, is left grey, as is None: the colours are for the rest.

    Args:
        panels: By name, rows of values in [-1, 1].
        label: The label of both axes.
        what: The quantity, beside the scale.
        path: Without suffix.
        across: The number of panels side by side.

    Returns:
        The files written, PNG and SVG.
    """
    tables = {name: _off_diagonal(rows) for name, rows in panels.items()}
    most = max((float(np.nanmax(np.abs(t), initial=0.0)) for t in tables.values()), default=0.0)
    with sheet(len(panels), path, across=across, width=2.9, height=2.8) as (figure, axes, written):
        for n, (axis, title) in enumerate(zip(axes, tables, strict=True)):
            image = _matrix(axis, tables[title], title, (-most, most), "RdBu_r", ".2f")
            axis.set_facecolor(FAINT)
            axis.set(xlabel=label, ylabel="" if n % across else label)
        figure.colorbar(image, ax=axes, shrink=0.7, label=what)
    return written


def _off_diagonal(rows: Sequence[Sequence[float | None]]) -> NDArray[Any]:
    values = np.array([[np.nan if v is None else v for v in row] for row in rows])
    np.fill_diagonal(values, np.nan)
    return values


def ranked(
    panels: Mapping[str, Mapping[str, tuple[Place, Place]]],
    labels: tuple[str, str],
    path: Path,
    *,
    colour: Mapping[str, str] | None = None,
    kinds: Mapping[str, str] | None = None,
) -> list[Path]:
    """Draw two quantities of every name in a row of its own, the highest first.

    Args:
        panels: title -> name -> the two quantities, each with its spread.
        labels: What they are. The second is on a logarithmic scale.
        path: Without suffix.
        colour: By name; by default that of the method it names.
        kinds: name -> the kind of its point; each kind has its own marker and a legend.

    Returns:
        The files written, PNG and SVG.
    """
    kinds, names = kinds or {}, {name for places in panels.values() for name in places}
    marks = dict(zip(sorted(set(kinds.values())), MARKS, strict=False))
    colour = colours(sorted(names)) if colour is None else colour
    across, most = min(4, 2 * len(panels)), max(map(len, panels.values()))
    size: dict[str, Any] = {"width": 2.7, "height": 0.75 + 0.17 * most}
    with sheet(2 * len(panels), path, across=across, **size) as (figure, axes, written):
        pairs = zip(axes[::2], axes[1::2], panels.items(), strict=True)
        for first, second, (title, places) in pairs:
            order = sorted(places, key=lambda name: places[name][0][0])
            for axis, which in ((first, 0), (second, 1)):
                for row, name in enumerate(order):
                    (value, spread), mark = places[name][which], marks.get(kinds.get(name, ""), "o")
                    style = {"color": colour[name], "markersize": 5, "elinewidth": 1.2}
                    axis.errorbar(value, row, xerr=spread, fmt=mark, **style)
                axis.set(xlabel=labels[which], ylim=(-0.7, len(order) - 0.3))
                axis.grid(axis="both", color=FAINT, linewidth=0.4)
                axis.tick_params(axis="y", length=0)
                axis.set_yticks(range(len(order)), order if which == 0 else [""] * len(order))
            first.set_title(title)
            second.set_xscale("log")
            for tick, name in zip(first.get_yticklabels(), order, strict=True):
                tick.set_color(colour[name])
        for column in (axes[::2], axes[1::2]):
            found = [axis.get_xlim() for axis in column]
            for axis in column:
                axis.set_xlim(min(low for low, _ in found), max(high for _, high in found))
        for axis in axes[1::2]:
            plain_ticks(axis)
        for kind, mark in marks.items():
            axes[0].plot([], [], mark, color=QUIET, markersize=5, label=kind)
        if marks:
            legend(figure, axes[:1])
    return written
