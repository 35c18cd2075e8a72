"""The figures of tables, each drawn from the content of the record alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..report.figures import lines, matrices, points
from .findings import Content, entry_of, short, value

__all__ = [
    "availability",
    "contexts",
    "correlation",
    "cost",
    "detection",
    "epsilon",
    "missed",
    "relevance",
    "task_locked",
]

Curves = dict[str, list[tuple[float, float]]]


def epsilon(content: Content, path: Path) -> list[Path]:
    """Immediate accuracy of every task, a line for every row."""
    return _a_panel_each(content, path, "immediate", "accuracy right after learning (%)", "task")


def relevance(content: Content, path: Path) -> list[Path]:
    """Availability left, task-locked and continual accuracy: a row of panels each, one a stream."""
    panels: dict[str, Curves] = {}
    for name, what, factor in (
        ("room", "mean availability", 1),
        ("task_locked", "task-locked accuracy (%)", 100),
        ("continual", "continual accuracy (%)", 100),
    ):
        panels |= {
            f"{short(s)}: {what}": _courses(content, s, name, factor) for s in content["streams"]
        }
    kept = _drawn(panels)
    labels = ["step within a task" if "locked" in title else "task" for title in kept]
    return lines(kept, labels, path, log=False, across=max(1, len(kept) // 3))


def task_locked(content: Content, path: Path) -> list[Path]:
    """Mean accuracy on a task while it is learned, a panel for every stream."""
    what, x = "task-locked accuracy (%)", "step within a task"
    return _a_panel_each(content, path, "task_locked", what, x)


def contexts(content: Content, path: Path) -> list[Path]:
    """Contexts found against tasks presented, a panel for every stream."""
    return _a_panel_each(content, path, "contexts", "contexts found", "tasks presented", factor=1)


def missed(content: Content, path: Path) -> list[Path]:
    """The share of switches missed so far, a line for every row."""
    return _a_panel_each(content, path, "missed", "switches missed (%)", "switch")


def detection(content: Content, path: Path) -> list[Path]:
    """How often a rotation is taken for another task, or for the first one; a line a column."""
    name = content["measures"][0]
    curves: Curves = {}
    for column in content["columns"]:
        for row in content["rows"]:
            entry = entry_of(content, row, column, content["streams"][0])
            share = None if entry is None else entry["measures"].get(name, {}).get("mean")
            if share is not None:
                curves.setdefault(column, []).append(
                    (float(row), 100 * (1 - share if name == "missed" else share))
                )
    what = (
        "found to be another task (%)"
        if name == "missed"
        else "the first task's context is reactivated (%)"
    )
    return (
        lines({what: curves}, "difference of angles (degrees)", path, log=False) if curves else []
    )


def correlation(content: Content, path: Path) -> list[Path]:
    """Correlations of the gates of tasks: a row for every stream, a matrix for every layer."""
    panels: dict[str, Sequence[Sequence[float | None]]] = {}
    across = 1
    for stream in content["streams"]:
        entry = next((e for e in content["entries"] if e["stream"] == stream), None)
        layers = [] if entry is None else entry["series"]["correlation"]["mean"]
        panels |= {f"{short(stream)}, layer {n}": layer for n, layer in enumerate(layers, 1)}
        across = max(across, len(layers))
    return matrices(panels, "task", path, across=across)


def availability(content: Content, path: Path) -> list[Path]:
    """Activity, gates and availability over three tasks, of selective units and of all."""
    found = content["entries"][0]["found"][0]
    panels = {
        quantity: {
            name: list(zip(found["step"], course, strict=True))
            for name, course in found["courses"][quantity].items()
        }
        for quantity in found["courses"]
    }
    return lines(panels, "step", path, log=False)


def cost(content: Content, path: Path) -> list[Path]:
    """Continual accuracy against training time, a point for every method, marked by its needs."""
    kinds = {entry["row"]: _needs(entry) for entry in content["entries"]}
    panels: dict[str, dict[str, tuple[float, float]]] = {}
    for stream in content["streams"]:
        for row in content["rows"]:
            accuracy, seconds = (
                value(content, row, stream, name) for name in ("continual_accuracy", "seconds")
            )
            if accuracy is not None and seconds is not None:
                panels.setdefault(short(stream), {})[row] = (max(seconds, 1e-3), 100 * accuracy)
    return (
        points(panels, "seconds to train", "continual accuracy (%)", path, kinds=kinds)
        if panels
        else []
    )


def _a_panel_each(
    content: Content, path: Path, series: str, what: str, x: str, factor: float = 100
) -> list[Path]:
    """A series of every row, a panel for every stream."""
    panels = {
        f"{short(s)}: {what}": _courses(content, s, series, factor) for s in content["streams"]
    }
    return lines(_drawn(panels), x, path, log=False)


def _needs(entry: Mapping[str, Any]) -> str:
    if entry["replay"]:
        return "stored data of past tasks"
    return "a head or network for every task" if entry.get("heads") else "one head, no stored data"


def _courses(content: Content, stream: str, series: str, factor: float = 100) -> Curves:
    """A line for every row that has the series; in several columns, for every column."""
    curves: Curves = {}
    several = len({e["column"] for e in content["entries"]}) > 1
    for row in content["rows"]:
        for column in content["columns"]:
            entry = entry_of(content, row, column, stream)
            if entry is not None and series in entry.get("series", {}):
                mean = entry["series"][series]["mean"]
                pairs = mean if isinstance(mean[0], list) else enumerate(mean, 1)
                curves[f"{row}, {column}" if several else row] = [(x, factor * y) for x, y in pairs]
    return curves


def _drawn(panels: Mapping[str, Curves]) -> dict[str, Curves]:
    """Streams of which nothing was run leave no empty panel."""
    return {title: curves for title, curves in panels.items() if curves}
