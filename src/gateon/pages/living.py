"""What a page says of a living model: its tasks, every lesson, what is at risk, the room left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..life.card import card
from ..life.measuring import more_tasks
from ..life.store import Store
from ..life.task import Task
from ..report.colours import PALETTE
from .gates import GATES, facts_of_gates, gates_of_state
from .living_findings import findings_of, risks_of
from .words import Facts, count, size

__all__ = ["facts_of_model", "lessons_of"]


def facts_of_model(folder: Path) -> Facts:
    """Everything a page shows of the living model in a directory."""
    store = Store(folder, card)
    about, history = store.about(), store.history()
    tasks = [Task.from_state(task) for task in about["tasks"]]
    lessons = lessons_of(history)
    shown = [_task(task) for task in tasks]
    more = more_tasks(about["room"], tasks)
    risks = risks_of(shown, more, about["room"])
    labels = sum(len(task.labels) for task in tasks)
    said = [f"A living model of {about['kind']}", count(len(tasks), "task"), count(labels, "label")]
    bytes_ = _bytes(folder, int(about["version"]))
    return {
        "kind": "living",
        "title": folder.resolve().name,
        "about": f"{', '.join(said)}, version {about['version']}.",
        "palette": PALETTE,
        "findings": findings_of(shown, risks, more, about["room"], lessons),
        "tasks": shown,
        "lessons": [lesson | {"now": _in_order(lesson["now"], shown)} for lesson in lessons],
        "room": about["room"],
        "more": more,
        "risks": risks,
        "gates": _gates(store, tasks),
        "versions": _versions(folder, history, int(about["version"])),
        "settings": about["settings"],
        "columns": about["columns"],
        "size": f"{about['inputs']} numbers in, {about['outputs']} labels out, "
        f"{size(bytes_)} on disk",
    }


def lessons_of(history: Sequence[Mapping[str, Any]]) -> list[Facts]:
    """The lessons that are in force, the first first: those of undone versions are left out.

    >>> learned = [{"what": "learn", "version": n, "lessons": [{"task": "ab"[n - 1]}]} for n in (1, 2)]
    >>> undone = {"what": "undo", "undone": 2, "version": 1}
    >>> [lesson["task"] for lesson in lessons_of([*learned, undone])]
    ['a']
    """
    found: list[Facts] = []
    for event in history:
        if event.get("what") == "undo":
            found = [lesson for lesson in found if lesson["version"] != event.get("undone")]
            continue
        for lesson in event.get("lessons", []):
            kept = {name: lesson.get(name) for name in LESSON}
            kept |= {"now": lesson.get("now") or {}, "room": lesson.get("room") or {}}
            found.append({"version": event.get("version"), "when": event.get("when"), **kept})
    return found


LESSON = (
    *("task", "new", "source", "sha256", "rows", "labels", "added", "decided", "epochs", "steps"),
    *("seconds", "accuracy"),
)


def _task(task: Task) -> Facts:
    return {
        "name": task.name,
        "labels": list(task.labels),
        "rows": task.samples,
        "lessons": task.lessons,
        "begun": task.begun,
        "learned": task.learned,
        "held": task.held,
        "then": task.then,
        "now": task.now,
        "untold": task.untold,
        "contexts": [part.context for part in task.parts],
        "error": error_of(task),
    }


def error_of(task: Task) -> float | None:
    """How far an accuracy over so few held-out rows may be off: two standard errors.

    >>> round(error_of(Task("a", held=100, now=0.9)), 3)
    0.062
    """
    if task.now is None or not task.held:
        return None
    likely = (task.now * task.held + 1) / (task.held + 2)  # never quite 0 or 1
    return 2 * math.sqrt(likely * (1 - likely) / task.held)


def _in_order(now: Mapping[str, Any], tasks: Sequence[Facts]) -> list[float | None]:
    return [now.get(task["name"]) for task in tasks]


def _gates(store: Store, tasks: Sequence[Task]) -> Facts | None:
    network = store.part("network", lambda name: name.endswith(GATES))
    names: dict[int, str] = {}
    for task in tasks:
        for n, part in enumerate(task.parts):
            names[part.context] = task.name if n == 0 else f"{task.name} ({n + 1})"
    ordered = [names.get(n, f"context {n + 1}") for n in range(max(names, default=-1) + 1)]
    gates = {
        site: is_open[: len(ordered)] for site, is_open in gates_of_state(network["model"]).items()
    }
    return facts_of_gates(gates, ordered, apart=True)


def _versions(folder: Path, history: Sequence[Mapping[str, Any]], current: int) -> list[Facts]:
    """Every event, the newest first, and whether its version is still on disk."""
    return [
        {
            "version": event.get("version"),
            "when": event.get("when"),
            "what": _told(event),
            "kept": event.get("what") != "undo"
            and _path(folder, int(event.get("version") or 0)).exists(),
            "current": event.get("what") != "undo" and event.get("version") == current,
        }
        for event in reversed(history)
    ]


def _told(event: Mapping[str, Any]) -> str:
    if event.get("what") == "undo":
        return f"undid version {event.get('undone')}"
    lessons = event.get("lessons", [])
    return "learned " + ", ".join(
        f"{one.get('task')} ({one.get('rows'):,} rows)" for one in lessons
    )


def _path(folder: Path, version: int) -> Path:
    return folder / "versions" / f"{version:06}.safetensors"


def _bytes(folder: Path, version: int) -> int:
    path = _path(folder, version)
    return path.stat().st_size if path.exists() else 0
