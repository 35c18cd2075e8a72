"""What all figures share: style, files, curves, names that stand apart, numbers in cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage.checkpoint import whole_file

__all__ = [
    "FAINT",
    "INK",
    "QUIET",
    "Panel",
    "apart",
    "cells",
    "curves",
    "legend",
    "name_ends",
    "plain_ticks",
    "sheet",
]

INK, QUIET, FAINT = "#222222", "#5f6368", "#d0d3d6"
SUFFIXES = (".png", ".svg")
STYLE: dict[str, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "text.color": INK,
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
    "svg.hashsalt": "gateon",  # so that equal figures are equal files
}
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.6, 1.2, 1.6)))
FEW = 8  # points of a curve, so few that they are marked
LINE, MORE = 1.3, 1.8  # width of a line, and what is added for each that lies on it
NUMBERS = 12  # rows of a matrix whose cells have room for numbers

Point = tuple[float, ...]  # x, y and, if known, the spread of y


@dataclass(frozen=True)
class Panel:
    """Curves in axes of their own. Panels whose y has the same name have the same limits.

    Args:
        title: above it.
        curves: name -> points (x, y) or (x, y, spread over seeds).
        x: what is along x.
        y: what is along y.
        starts: where tasks begin along x, if x goes through several.
        log: whether x is on a logarithmic scale; points are marked then.
        limits: of y; as the curves need by default.
        marks: name -> a place along x that is marked in the colour of the curve.
    """

    title: str
    curves: Mapping[str, Sequence[Point]]
    x: str
    y: str
    starts: Sequence[float] = ()
    log: bool = False
    limits: tuple[float, float] | None = None
    marks: Mapping[str, float] = field(default_factory=dict)


@contextmanager
def sheet(
    panels: int,
    path: Path | None,
    *,
    across: int,
    width: float,
    height: float,
    stretch: bool = False,
) -> Iterator[tuple[Any, list[Any], list[Path]]]:
    """A figure with `across` panels per row, written as PNG and SVG once it is drawn.

    A notebook shows it, whatever backend is chosen there.

    Args:
        panels: how many.
        path: without suffix; None to write nothing.
        across: panels per row.
        width: of a panel, in inches.
        height: likewise.
        stretch: whether the last panel takes what is left of its row.
    """
    import matplotlib
    from matplotlib.figure import Figure

    down = -(-panels // across)
    written = [] if path is None else [path.parent / f"{path.name}{end}" for end in SUFFIXES]
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]  # its keys are a long Literal
        figure: Any = Figure(figsize=(width * across, height * down), layout="constrained")
        grid = figure.add_gridspec(down, across)
        places = [grid[n // across, n % across] for n in range(panels)]
        if stretch:
            places[-1] = grid[down - 1, (panels - 1) % across :]
        figure._repr_png_ = partial(_png, figure)
        yield figure, [figure.add_subplot(place) for place in places], written
        for file in written:
            kind = file.suffix.removeprefix(".")
            with whole_file(file) as temporary:
                metadata = {"Date": None} if kind == "svg" else None
                figure.savefig(temporary, format=kind, metadata=metadata)


def _png(figure: Any) -> bytes:
    import matplotlib

    file = BytesIO()
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        figure.savefig(file, format="png")
    return file.getvalue()


def curves(axis: Any, panel: Panel, colour: Mapping[str, str]) -> None:
    """Draw the curves of a panel, those that others cover wider, with bands for the spread."""
    covered = _covered(list(panel.curves.values()))
    for n, ((name, points), above) in enumerate(zip(panel.curves.items(), covered, strict=True)):
        x, y, *spread = (np.array(part, dtype=float) for part in zip(*points, strict=True))
        axis.plot(
            x,
            y,
            color=colour[name],
            linestyle="-" if above else DASHES[n % len(DASHES)],
            linewidth=LINE + MORE * above,
            marker="o" if panel.log or len(points) <= FEW else "",
            markersize=3 + MORE * above,
            solid_capstyle="butt",
            label=name,
        )
        for width in spread:
            band = {"color": colour[name], "alpha": 0.16, "linewidth": 0}
            axis.fill_between(x, y - width, y + width, **band)
    for name, place in panel.marks.items():
        axis.axvline(place, color=colour[name], linewidth=0.9, linestyle=(0, (1, 2)), zorder=0.5)
    pad = 13 if panel.starts else None
    axis.set_title(panel.title, pad=pad)
    axis.set(xlabel=panel.x, ylabel=panel.y, xscale="log" if panel.log else "linear")
    if panel.log:
        plain_ticks(axis)
    else:
        axis.margins(x=0)
        axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(axis="y", color=FAINT, linewidth=0.4)
    axis.set_axisbelow(True)
    if panel.starts:
        _mark_tasks(axis, panel.starts)


def plain_ticks(axis: Any) -> None:
    """Write 0.1, 0.2 and 0.5 on a logarithmic scale, and no powers of ten."""
    low, high = axis.get_xlim()
    axis.xaxis.get_major_locator().set_params(subs=(1, 2, 5) if high < 300 * low else (1,))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("")


def _mark_tasks(axis: Any, starts: Sequence[float]) -> None:
    ends = [*starts[1:], axis.get_xlim()[1]]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if number > 1:
            axis.axvline(start, color=QUIET, linewidth=0.7, linestyle=(0, (1, 2)), zorder=0.5)
        words = {"fontsize": 7, "color": QUIET, "ha": "center", "va": "bottom"}
        to = axis.get_xaxis_transform()
        axis.text((start + end) / 2, 1.02, f"task {number}", transform=to, **words)


def _covered(courses: Sequence[Sequence[Point]]) -> list[int]:
    """How many later curves lie on each all the way, or nearly: dashes show it where they meet."""
    heights = [point[1] for points in courses for point in points]
    near = 0.005 * (max(heights) - min(heights)) if heights else 0.0
    counts = []
    for n, points in enumerate(courses):
        mine = {point[0]: point[1] for point in points}
        on = [
            sum(point[0] in mine and abs(mine[point[0]] - point[1]) <= near for point in other)
            for other in courses[n + 1 :]
        ]
        counts.append(sum(count >= 0.9 * len(points) for count in on))
    return counts


def legend(figure: Any, axes: Sequence[Any], order: Sequence[str] = ()) -> None:
    """The names of the curves of all axes, below the whole figure and outside every panel."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    names = sorted(found, key=lambda name: order.index(name) if name in order else len(order))
    style = {"loc": "outside lower center", "ncol": min(len(found), 4), "frameon": False}
    figure.legend([found[name] for name in names], names, **style)


def name_ends(axis: Any, panel: Panel, colour: Mapping[str, str]) -> None:
    """Write the names of curves at their right ends; a line leads to a name that had to move."""
    low, high = axis.get_ylim()
    ends = {name: (points[-1][1] - low) / (high - low) for name, points in panel.curves.items()}
    names = sorted(ends, key=lambda name: ends[name])
    place = axis.get_subplotspec()
    grid, (width, tall) = place.get_gridspec(), axis.figure.get_size_inches()
    gap = 11 * grid.nrows / (72 * 0.75 * tall)
    beside = 1 + 14 * grid.ncols / (72 * 0.8 * width * len(place.colspan))
    for name, height in zip(names, apart([ends[name] for name in names], gap), strict=True):
        if abs(height - ends[name]) > 0.01:
            across = ([1.0, 1 + 0.75 * (beside - 1)], [ends[name], height])
            style = {"color": colour[name], "linewidth": 0.7, "clip_on": False}
            axis.plot(*across, transform=axis.transAxes, **style)
        words = {"color": colour[name], "va": "center", "fontsize": 8}
        axis.text(beside, height, name, transform=axis.transAxes, **words)


def apart(wanted: Sequence[float], gap: float) -> list[float]:
    """Places in the same order, at least a gap apart, close to those wanted.

    >>> [round(place, 2) for place in apart([0.5, 0.5, 0.9], 0.1)]
    [0.45, 0.55, 0.9]
    """
    groups: list[list[float]] = []  # of what stands together: the wanted places of the first
    for place in wanted:
        groups.append([place])
        while len(groups) > 1:
            before, last = groups[-2], groups[-1]
            first, second = (sum(group) / len(group) for group in (before, last))
            if second - first >= gap * len(before):
                break
            joined = before + [one - gap * len(before) for one in last]
            groups[-2:] = [joined]
    return [
        sum(group) / len(group) + gap * place for group in groups for place in range(len(group))
    ]


def cells(axis: Any, image: Any, values: NDArray[Any], form: str) -> None:
    """Write its number into every cell of a matrix, if there is room."""
    if len(values) > NUMBERS:
        return
    for row, column in np.argwhere(~np.isnan(values)):
        value = values[row, column]
        red, green, blue, _ = image.cmap(image.norm(value))
        is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
        text = f"{value:{form}}".replace("0.", ".").replace("1.00", "1")
        style = {"ha": "center", "va": "center", "fontsize": 5.5}
        axis.text(column + 1, row + 1, text, color=INK if is_light else "white", **style)
