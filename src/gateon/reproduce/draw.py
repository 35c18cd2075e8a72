"""The figures of tables, each drawn from the content of the record alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

from ..report.colours import colours
from ..report.figures import Panel, Place, lines, matrices, ranked
from .findings import Content, entry_of, short

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

SHARE = (-2.0, 102.0)  # limits of percentages, all of them to be seen
# Of groups of units, which are no methods: all of them, then those selective for a task each.
UNITS = ("#222222", "#a06a00", "#b5179e", "#3a86a8", "#5b8c5a")

Curves = dict[str, list[tuple[float, ...]]]


def epsilon(content: Content, path: Path) -> list[Path]:
    """Immediate accuracy of every task, a line for every row."""
    return _a_panel_each(content, path, "immediate", "accuracy right after learning (%)", "task")


def relevance(content: Content, path: Path) -> list[Path]:
    """Availability left, task-locked and continual accuracy: a row of panels each, one a stream."""
    panels = [
        panel
        for name, what, x, factor in (
            ("room", "mean availability", "task", 1),
            ("task_locked", "task-locked accuracy (%)", "step within a task", 100),
            ("continual", "continual accuracy (%)", "task", 100),
        )
        for panel in _panels(content, name, what, x, factor)
    ]
    return _lines(content, panels, path, across=max(1, len(panels) // 3))


def task_locked(content: Content, path: Path) -> list[Path]:
    """Mean accuracy on a task while it is learned, a panel for every stream."""
    what, x = "task-locked accuracy (%)", "step within a task"
    return _a_panel_each(content, path, "task_locked", what, x)


def contexts(content: Content, path: Path) -> list[Path]:
    """Contexts found against tasks presented, a panel for every stream."""
    return _a_panel_each(content, path, "contexts", "contexts found", "tasks presented", factor=1)


def missed(content: Content, path: Path) -> list[Path]:
    """The share of switches missed so far, a line for every row."""
    panels = _panels(content, "missed", "switches missed (%)", "switch", 100)
    return _lines(content, [replace(panel, limits=SHARE) for panel in panels], path)


def detection(content: Content, path: Path) -> list[Path]:
    """How often a rotation is taken for another task, or for the first one; a line a column."""
    name, stream = content["measures"][0], content["streams"][0]
    curves: Curves = {}
    for column in content["columns"]:
        for row in content["rows"]:
            entry = entry_of(content, row, column, stream)
            found = None if entry is None else entry["measures"].get(name)
            if found is not None:
                share = 1 - found["mean"] if name == "missed" else found["mean"]
                curves.setdefault(column, []).append(
                    (float(row), 100 * share, 100 * found["spread"])
                )
    what = (
        "found to be another task (%)"
        if name == "missed"
        else "the first task's context is reactivated (%)"
    )
    panel = Panel(short(stream), curves, "difference of angles (degrees)", what, limits=SHARE)
    return _lines(content, [panel] if curves else [], path)


def correlation(content: Content, path: Path) -> list[Path]:
    """Correlations of the gates of tasks: a row for every stream, a matrix for every layer."""
    panels: dict[str, Sequence[Sequence[float | None]]] = {}
    across = 1
    for stream in content["streams"]:
        entry = next((e for e in content["entries"] if e["stream"] == stream), None)
        layers = [] if entry is None else entry["series"]["correlation"]["mean"]
        panels |= {f"{short(stream)}, layer {n}": layer for n, layer in enumerate(layers, 1)}
        across = max(across, len(layers))
    return matrices(panels, "task", "correlation of gates; the diagonal is 1", path, across=across)


def availability(content: Content, path: Path) -> list[Path]:
    """Activity, gates and availability over three tasks, of groups of units and of single ones."""
    found = content["entries"][0]["found"][0]
    steps = found["step"]
    starts = [steps[0] + len(steps) * task / found["tasks"] for task in range(found["tasks"])]
    tasks = [f"selective for task {task}" for task in range(1, found["tasks"] + 1)]
    colour = dict(zip(["all", *tasks], cycle(UNITS), strict=False))
    panels = [
        Panel(
            title.format(quantity),
            {name: list(zip(steps, course, strict=True)) for name, course in courses.items()},
            "step",
            quantity,
            starts,
        )
        for kind, title in (("courses", "{}, mean over units"), ("units", "{}, single units"))
        for quantity, courses in found.get(kind, {}).items()
    ]
    return lines(panels, path, across=3, colour=colour)


def cost(content: Content, path: Path) -> list[Path]:
    """Continual accuracy and training time, a row for every method, marked by its needs."""
    kinds = {entry["row"]: _needs(entry) for entry in content["entries"]}
    panels: dict[str, dict[str, tuple[Place, Place]]] = {}
    for entry in content["entries"]:
        found = entry.get("measures", {})
        if "continual_accuracy" in found and "seconds" in found:
            accuracy, seconds = found["continual_accuracy"], found["seconds"]
            panels.setdefault(short(entry["stream"]), {})[entry["row"]] = (
                (100 * accuracy["mean"], 100 * accuracy["spread"]),
                (max(seconds["mean"], 1e-3), seconds["spread"]),
            )
    labels, colour = ("continual accuracy (%)", "seconds to train"), _colours(content, list(kinds))
    return ranked(panels, labels, path, colour=colour, kinds=kinds) if panels else []


def _a_panel_each(
    content: Content, path: Path, series: str, what: str, x: str, factor: float = 100
) -> list[Path]:
    """A series of every row, a panel for every stream."""
    return _lines(content, _panels(content, series, what, x, factor), path)


def _panels(content: Content, series: str, what: str, x: str, factor: float) -> list[Panel]:
    """A panel for every stream; those of which nothing was run leave none."""
    courses = {s: _courses(content, s, series, factor) for s in content["streams"]}
    return [Panel(short(s), found, x, what) for s, found in courses.items() if found]


def _lines(
    content: Content, panels: Sequence[Panel], path: Path, across: int | None = None
) -> list[Path]:
    names = dict.fromkeys(name for panel in panels for name in panel.curves)
    return lines(panels, path, across=across, colour=_colours(content, list(names)))


def _colours(content: Content, names: Sequence[str]) -> dict[str, str]:
    """The colours of lines, each named by a row, a column or both: those of their methods."""
    methods = {
        name: entry["settings"]["method"]["name"]
        for entry in content["entries"]
        for name in (entry["row"], entry["column"], f"{entry['row']}, {entry['column']}")
    }
    return colours(names, methods)


def _needs(entry: Mapping[str, Any]) -> str:
    if entry["replay"]:
        return "stored data of past tasks"
    return "a head or network for every task" if entry.get("heads") else "one head, no stored data"


def _courses(content: Content, stream: str, series: str, factor: float) -> Curves:
    """A line for every row that has the series; in several columns, for every column."""
    found: Curves = {}
    columns = len({e["column"] for e in content["entries"]})
    rows = len({e["row"] for e in content["entries"]})
    for row in content["rows"]:
        for column in content["columns"]:
            entry = entry_of(content, row, column, stream)
            if entry is not None and series in entry.get("series", {}):
                held = entry["series"][series]
                name = row if columns == 1 else column if rows == 1 else f"{row}, {column}"
                found[name] = _points(held["mean"], held["spread"], factor)
    return found


def _points(mean: list[Any], spread: list[Any], factor: float) -> list[tuple[float, ...]]:
    """(x, y, spread over seeds); the series of some measures hold pairs (x, y)."""
    if isinstance(mean[0], list):
        paired = zip(mean, spread, strict=True)
        return [(x, factor * y, factor * width) for (x, y), (_, width) in paired]
    return [
        (x, factor * y, factor * width)
        for x, (y, width) in enumerate(zip(mean, spread, strict=True), 1)
    ]
