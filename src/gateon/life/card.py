"""The model card: README.md in the directory of a living model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..markup import block, table
from ..storage.files import printable
from .measuring import more_tasks
from .task import Task

__all__ = ["card", "tasks_html"]

SHOWN = 12  # labels of a task
USED_BY = {"model": "texts", "channels": "images"}  # settings that other kinds do not have


def card(about: Mapping[str, Any]) -> str:
    """The card of a version, from its part "about", as Markdown."""
    tasks = [Task.from_state(task) for task in about["tasks"]]
    lines = [
        "# A living model",
        "",
        f"A model of {about['kind']} that learned {_count(len(tasks), 'task')} with gateon, one "
        "after another, without storing what it was trained on.",
        "",
        "| task | labels | rows | learned | accuracy then | now | task not told |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in tasks:
        cells = (
            *(_cell(task.name), str(len(task.labels)), f"{task.samples:,}", task.learned[:10]),
            *(_percent(share) for share in (task.then, task.now, task.untold)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"Accuracy is measured on rows that were never learned. {_room(about, tasks)}"]
    lines += ["", "## Labels", ""]
    for task in tasks:
        more = len(task.labels) - SHOWN
        shown = ", ".join(_cell(label) for label in task.labels[:SHOWN])
        lines.append(f"- {_cell(task.name)}: {shown}" + (f" and {more} more" if more > 0 else ""))
    lines += ["", "## Use", "", "```python", "import gateon", ""]
    lines += ['model = gateon.load(".")', f"model.predict({_example(about)})", "```", ""]
    lines += ["Made with the settings", "", "```"]
    lines += [
        f"{name} = {value}"
        for name, value in about["settings"].items()
        if about["kind"] == USED_BY.get(name, about["kind"])
    ]
    lines += ["```", "", "`history.jsonl` has what was learned when, from which file.", ""]
    return "\n".join(lines)


def tasks_html(tasks: Sequence[Task], room: Mapping[str, float], place: str) -> str:
    """What a model has learned, for a notebook.

    Args:
        tasks: in the order in which they were learned first.
        room: left, by layer.
        place: where the model is kept; empty if nowhere.
    """
    if not tasks:
        return block("Living model", note="it has learned nothing yet")
    titles = ("task", "labels", "rows", "learned", "accuracy then", "now", "task not told")
    rows = [
        [
            *(task.name, str(len(task.labels)), f"{task.samples:,}", task.learned[:10]),
            *(_percent(share) for share in (task.then, task.now, task.untold)),
        ]
        for task in tasks
    ]
    said = _room({"room": room}, list(tasks))
    return block(f"Living model {place}".strip(), table(titles, rows), note=f"percent. {said}")


def _room(about: Mapping[str, Any], tasks: list[Task]) -> str:
    more = more_tasks(about["room"], tasks)
    left = ", ".join(f"layer {name} {share:.0%}" for name, share in about["room"].items())
    said = f"Room left: {left}."
    return (
        said if more is None else f"{said} About {_count(more, 'more task')} like these will fit."
    )


def _example(about: Mapping[str, Any]) -> str:
    return '["a text"]' if about["kind"] == "texts" else '"new.csv"'


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _cell(name: str) -> str:
    """A name that breaks neither a table nor a list."""
    return printable(name).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
