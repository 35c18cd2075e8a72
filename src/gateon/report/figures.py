"""Figures of records, all in one style."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..runs.record import Record
from ..storage.checkpoint import whole_file
from .colours import colours

__all__ = ["bars", "compare_figure", "lines", "matrices", "points"]

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 150,
    "savefig.bbox": "tight",
    "svg.hashsalt": "gateon",  # so that equal figures are equal files
}
MARKS = ("o", "s", "^", "D")
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568")


def compare_figure(records: Mapping[str, Record], path: Path) -> list[Path]:
    """Draw accuracy matrices side by side, and the mean accuracy over the tasks learned so far.

    Args:
        records: By the name of the run.
        path: Without suffix.

    Returns:
        The files written, PNG and SVG.
    """
    colour, suffixes = colours(records), (".png", ".svg")
    with _drawing(1 + len(records), path, suffixes=suffixes) as (figure, axes, written):
        for n, (name, record) in enumerate(records.items()):
            size = len(record.accuracy)
            values = np.full((size, size), np.nan)
            for k, row in enumerate(record.accuracy):
                values[k, : len(row)] = [np.nan if a is None else 100 * a for a in row]
            image = axes[n].imshow(values, vmin=0, vmax=100, cmap="viridis")
            axes[n].set(title=name, xlabel="tested on task", ylabel="after learning task")
            ticks = range(0, size, max(1, size // 10))
            axes[n].set_xticks(ticks, [t + 1 for t in ticks])
            axes[n].set_yticks(ticks, [t + 1 for t in ticks])
            figure.colorbar(image, ax=axes[n], fraction=0.046, label="accuracy (%)")
            # NaN, which is not drawn, where a task was not measured.
            means = values.mean(axis=1, where=np.tri(size, dtype=bool))
            style = {"color": colour[name], "markersize": 3, "label": name}
            axes[-1].plot(range(1, size + 1), means, "o-", **style)
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        axes[-1].set(xlabel="tasks learned", ylabel="mean accuracy over them (%)", ylim=(0, 102))
        axes[-1].legend(frameon=False)
    return written


def bars(rows: Mapping[str, tuple[float, float, float]], label: str, path: Path) -> list[Path]:
    """Draw one bar per row, with a line at 1.

    Args:
        rows: By name, (middle, low, high).
        label: The label of the x-axis.
        path: Without suffix.

    Returns:
        The file written, an SVG.
    """
    with _drawing(1, path, width=6.0) as (_, axes, written):
        names = list(rows)[::-1]
        middle, low, high = (np.array([rows[name][i] for name in names]) for i in range(3))
        error = (middle - low, high - middle)
        axes[0].barh(names, middle, xerr=error, color=COLOURS[0], ecolor=COLOURS[-1], height=0.6)
        axes[0].axvline(1, color=COLOURS[-1], linewidth=0.8)
        axes[0].set_xlabel(label)
    return written


def lines(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    label: str | Sequence[str],
    path: Path,
    *,
    log: bool = True,
    across: int | None = None,
    up: str = "",
) -> list[Path]:
    """Draw one panel per quantity, with one line per name.

    Args:
        panels: title -> name -> points (x, y).
        label: The label of the x-axes: one for all, or one each.
        path: Without suffix.
        log: Whether x is on a logarithmic scale; points are marked then.
        across: The number of panels side by side; all by default.
        up: The label of the y-axes.

    Returns:
        The file written, an SVG.
    """
    mark, scale = ("o-", "log") if log else ("-", "linear")
    labels = [label] * len(panels) if isinstance(label, str) else label
    with _drawing(len(panels), path, across=across) as (_, axes, written):
        for axis, words, (title, curves) in zip(axes, labels, panels.items(), strict=False):
            for n, (name, points) in enumerate(curves.items()):
                style = {"color": COLOURS[n % len(COLOURS)], "markersize": 3, "linewidth": 1.2}
                axis.plot(*zip(*points, strict=True), mark, label=name, **style)
            axis.set(title=title, xlabel=words, ylabel=up, xscale=scale)
        axes[0].legend(frameon=False)
    return written


def matrices(
    panels: Mapping[str, Sequence[Sequence[float | None]]], label: str, path: Path, *, across: int
) -> list[Path]:
    """Draw one square image per name.

    Args:
        panels: By name, rows of values in [-1, 1]; None is left white.
        label: The label of both axes.
        path: Without suffix.
        across: The number of panels side by side.

    Returns:
        The file written, an SVG.
    """
    with _drawing(len(panels), path, width=2.4, across=across) as (figure, axes, written):
        for axis, (title, rows) in zip(axes, panels.items(), strict=False):
            values = np.array([[np.nan if v is None else v for v in row] for row in rows])
            edges = (0.5, len(values) + 0.5, len(values) + 0.5, 0.5)  # tasks are counted from 1
            image = axis.imshow(values, vmin=-1, vmax=1, cmap="RdBu_r", extent=edges)
            axis.set(title=title, xlabel=label, ylabel=label)
            figure.colorbar(image, ax=axis, fraction=0.046)
    return written


def points(
    panels: Mapping[str, Mapping[str, tuple[float, float]]],
    label: str,
    up: str,
    path: Path,
    *,
    kinds: Mapping[str, str] | None = None,
) -> list[Path]:
    """Draw one panel per title, with one named point per name and x on a logarithmic scale.

    Names stand in a column beside the panel, ordered by the heights of their points, so that they
    never overlap.

    Args:
        panels: title -> name -> point (x, y).
        label: The label of the x-axes.
        up: The label of the y-axes.
        path: Without suffix.
        kinds: name -> the kind of its point; each kind has its own marker and a legend.

    Returns:
        The file written, an SVG.
    """
    from matplotlib.ticker import LogLocator

    kinds = kinds or {}
    marks = dict(zip(dict.fromkeys(kinds.values()), MARKS, strict=False))
    names = dict.fromkeys(name for points in panels.values() for name in points)
    colours = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(names)}
    drawing = _drawing(len(panels), path, width=5.6, across=min(2, len(panels)), height=3.6)
    with drawing as (figure, axes, written):
        for axis, (title, places) in zip(axes, panels.items(), strict=False):
            for name, place in places.items():
                mark = marks.get(kinds.get(name, ""), "o")
                axis.plot(*place, mark, color=colours[name], markersize=4.5)
            axis.set(title=title, xlabel=label, ylabel=up, xscale="log")
            axis.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter("{x:g}")
            _name_beside(axis, places, colours)
        for kind, mark in marks.items():
            axes[0].plot([], [], mark, color=COLOURS[-1], markersize=4.5, label=kind)
        if marks:
            figure.legend(
                frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=len(marks)
            )
    return written


def _name_beside(
    axis: Any, places: Mapping[str, tuple[float, float]], colours: Mapping[str, str]
) -> None:
    """Write the names at even distances on the right, each with a thin line to its point."""
    order = sorted(places, key=lambda name: places[name][1])
    line = {"arrowstyle": "-", "linewidth": 0.4, "relpos": (0, 0.5), "shrinkB": 3}
    for height, name in zip(np.linspace(0.0, 1.0, max(2, len(order))), order, strict=False):
        axis.annotate(
            name,
            places[name],
            xytext=(1.06, height),
            textcoords="axes fraction",
            fontsize=6.5,
            verticalalignment="center",
            color=colours[name],
            arrowprops=line | {"color": colours[name]},
            annotation_clip=False,
        )


@contextmanager
def _drawing(
    panels: int,
    path: Path,
    width: float = 3.4,
    across: int | None = None,
    height: float | None = None,
    suffixes: Sequence[str] = (".svg",),
) -> Iterator[tuple[Any, Any, list[Path]]]:
    """A figure with `across` panels per row, written once it is drawn."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    across = across or panels
    down = -(-panels // across)
    written = [path.with_suffix(suffix) for suffix in suffixes]
    with plt.rc_context(STYLE):  # type: ignore[arg-type]  # its keys are a long Literal
        size = width * across, (min(width, 3.4) - 0.2 if height is None else height) * down
        figure, axes = plt.subplots(down, across, figsize=size, squeeze=False)
        for unused in axes.flat[panels:]:
            unused.axis("off")
        yield figure, axes.flatten(), written
        figure.tight_layout()
        for file in written:
            with whole_file(file) as temporary:
                kind = file.suffix.removeprefix(".")
                metadata = {"Date": None} if kind == "svg" else None
                figure.savefig(temporary, format=kind, metadata=metadata)
        plt.close(figure)
