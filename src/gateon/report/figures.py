"""Figures of records, through one style."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..record import Record

__all__ = ["bars", "compare_figure", "lines"]

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 150,
    "savefig.bbox": "tight",
}
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
            means = values.mean(axis=1, where=np.tri(size, dtype=bool))  # NaN, and not drawn, where some task was not measured
            axes[-1].plot(range(1, size + 1), means, "o-", color=COLOURS[n % len(COLOURS)], markersize=3, label=name)
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        axes[-1].set(xlabel="tasks learned", ylabel="mean accuracy over them (%)", ylim=(0, 102))
        axes[-1].legend(frameon=False)
    return written


def bars(rows: Mapping[str, tuple[float, float, float]], label: str, path: Path) -> list[Path]:
    """One bar for every row, (middle, low, high), with 1 marked; written as PNG and SVG."""
    with _drawing(1, path, width=6.0) as (_, axes, written):
        names = list(rows)[::-1]
        middle, low, high = (np.array([rows[name][i] for name in names]) for i in range(3))
        axes[0].barh(names, middle, xerr=(middle - low, high - middle), color=COLOURS[0], ecolor=COLOURS[-1], height=0.6)
        axes[0].axvline(1, color=COLOURS[-1], linewidth=0.8)
        axes[0].set_xlabel(label)
    return written


def lines(panels: Mapping[str, Mapping[str, list[tuple[float, float]]]], label: str, path: Path) -> list[Path]:
    """One panel for every quantity, with a line of (x, y) for every name, x on a logarithmic scale; written as PNG and SVG."""
    with _drawing(len(panels), path) as (_, axes, written):
        for axis, (title, curves) in zip(axes, panels.items(), strict=True):
            for colour, (name, points) in zip(COLOURS, curves.items(), strict=False):
                axis.plot(*zip(*points, strict=True), "o-", color=colour, markersize=3, label=name)
            axis.set(title=title, xlabel=label, xscale="log")
        axes[0].legend(frameon=False)
    return written


@contextmanager
def _drawing(panels: int, path: Path, width: float = 3.4) -> Iterator[tuple[Any, Any, list[Path]]]:
    """A figure with panels side by side, in the style; written to the path with both endings when it is drawn."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    written = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    with plt.rc_context(STYLE):  # type: ignore[arg-type]  # its keys are a long Literal
        figure, axes = plt.subplots(1, panels, figsize=(width * panels, 3.2), squeeze=False)
        yield figure, axes[0], written
        figure.tight_layout()
        for file in written:
            figure.savefig(file)
        plt.close(figure)
