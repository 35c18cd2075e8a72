"""Figures of records, through one style."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..runs.record import Record
from ..storage.checkpoint import whole_file

__all__ = ["bars", "compare_figure", "lines", "matrices", "points"]

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 150,
    "savefig.bbox": "tight",
    "svg.hashsalt": "gateon",  # the same figure is the same file
}
MARKS = ("o", "s", "^", "D")
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568")


def compare_figure(records: Mapping[str, Record], path: Path) -> list[Path]:
    """Accuracy matrices side by side, and the mean accuracy over the tasks seen so far; written as PNG and SVG."""
    with _drawing(1 + len(records), path) as (figure, axes, written):
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
            # NaN, and not drawn, where some task was not measured
            means = values.mean(axis=1, where=np.tri(size, dtype=bool))
            axes[-1].plot(
                range(1, size + 1),
                means,
                "o-",
                color=COLOURS[n % len(COLOURS)],
                markersize=3,
                label=name,
            )
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        axes[-1].set(xlabel="tasks learned", ylabel="mean accuracy over them (%)", ylim=(0, 102))
        axes[-1].legend(frameon=False)
    return written


def bars(rows: Mapping[str, tuple[float, float, float]], label: str, path: Path) -> list[Path]:
    """One bar for every row, (middle, low, high), with 1 marked; written as PNG and SVG."""
    with _drawing(1, path, width=6.0) as (_, axes, written):
        names = list(rows)[::-1]
        middle, low, high = (np.array([rows[name][i] for name in names]) for i in range(3))
        axes[0].barh(
            names,
            middle,
            xerr=(middle - low, high - middle),
            color=COLOURS[0],
            ecolor=COLOURS[-1],
            height=0.6,
        )
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
    """One panel for every quantity, with a line of (x, y) for every name; written as PNG and SVG.

    Args:
        panels: title -> name -> points.
        label: of the x-axes: one for all, or one each.
        path: without ending.
        log: whether x is on a logarithmic scale; small marks are set on the points then.
        across: how many panels side by side; all by default.
        up: label of the y-axes.
    """
    mark, labels = "o-" if log else "-", [label] * len(panels) if isinstance(label, str) else label
    with _drawing(len(panels), path, across=across) as (_, axes, written):
        for axis, words, (title, curves) in zip(axes, labels, panels.items(), strict=False):
            for n, (name, points) in enumerate(curves.items()):
                axis.plot(
                    *zip(*points, strict=True),
                    mark,
                    color=COLOURS[n % len(COLOURS)],
                    markersize=3,
                    linewidth=1.2,
                    label=name,
                )
            axis.set(title=title, xlabel=words, ylabel=up, xscale="log" if log else "linear")
        axes[0].legend(frameon=False)
    return written


def matrices(
    panels: Mapping[str, Sequence[Sequence[float | None]]], label: str, path: Path, *, across: int
) -> list[Path]:
    """One square picture for every name, of values in [-1, 1]; what is None stays white. Written as PNG and SVG."""
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
    """One panel for every title, with one named point (x, y) for every name, x on a logarithmic scale; written as PNG and SVG.

    Names stand in a column beside the panel, in the order of the points' heights and never one over
    another.

    Args:
        panels: title -> name -> place.
        label: of the x-axes.
        up: of the y-axes.
        path: without ending.
        kinds: name -> what kind of point it is; every kind has a marker of its own, and is
            explained.
    """
    from matplotlib.ticker import LogLocator

    kinds = kinds or {}
    marks = dict(zip(dict.fromkeys(kinds.values()), MARKS, strict=False))
    colours = {
        name: COLOURS[n % len(COLOURS)]
        for n, name in enumerate(dict.fromkeys(n for p in panels.values() for n in p))
    }
    with _drawing(len(panels), path, width=5.6, across=min(2, len(panels)), height=3.6) as (
        figure,
        axes,
        written,
    ):
        for axis, (title, places) in zip(axes, panels.items(), strict=False):
            for name, place in places.items():
                axis.plot(
                    *place, marks.get(kinds.get(name, ""), "o"), color=colours[name], markersize=4.5
                )
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
    """Names at even distances on the right, each with a thin line to its point."""
    order = sorted(places, key=lambda name: places[name][1])
    for height, name in zip(np.linspace(0.0, 1.0, max(2, len(order))), order, strict=False):
        axis.annotate(
            name,
            places[name],
            xytext=(1.06, height),
            textcoords="axes fraction",
            fontsize=6.5,
            verticalalignment="center",
            color=colours[name],
            arrowprops={
                "arrowstyle": "-",
                "linewidth": 0.4,
                "color": colours[name],
                "relpos": (0, 0.5),
                "shrinkB": 3,
            },
            annotation_clip=False,
        )


@contextmanager
def _drawing(
    panels: int,
    path: Path,
    width: float = 3.4,
    across: int | None = None,
    height: float | None = None,
) -> Iterator[tuple[Any, Any, list[Path]]]:
    """A figure with panels side by side, `across` of them in a row, in the style; written with both endings when it is drawn."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    across = across or panels
    down = -(-panels // across)
    written = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    with plt.rc_context(STYLE):  # type: ignore[arg-type]  # its keys are a long Literal
        size = width * across, (min(width, 3.4) - 0.2 if height is None else height) * down
        figure, axes = plt.subplots(down, across, figsize=size, squeeze=False)
        for unused in axes.flat[panels:]:
            unused.axis("off")
        yield figure, axes.flatten(), written
        figure.tight_layout()
        for file in written:
            with whole_file(file) as aside:
                kind = file.suffix.removeprefix(".")
                figure.savefig(
                    aside, format=kind, metadata={"Date": None} if kind == "svg" else None
                )
        plt.close(figure)
