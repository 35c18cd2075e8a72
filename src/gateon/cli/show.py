"""gateon show."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..life.measuring import more_tasks
from ..life.model import about
from ..life.task import Task
from ..storage.files import printable
from .parse import JSON, Directory

__all__ = ["command"]


def command(directory: Directory, as_json: JSON = False) -> None:
    """Show what a model has learned: tasks, accuracy then and now, room left.

    Args:
        directory: of the model.
        as_json: print it as JSON.
    """
    found, history = about(directory)
    if as_json:
        print(json.dumps(found | {"history": history}, ensure_ascii=False))
        return
    tasks = [Task.from_state(task) for task in found["tasks"]]
    console = Console()
    lines = [f"{directory}: version {found['version']}, reads {found['kind']}"]
    console.print(printable(lines[0]), markup=False, highlight=False, soft_wrap=True)
    console.print(_tasks(tasks))
    rooms = ", ".join(f"{name} {share:.0%}" for name, share in found["room"].items())
    more = more_tasks(found["room"], tasks)
    fit = "" if more is None else f"; about {more} more tasks like these will fit"
    console.print(f"room left by layer: {rooms}{fit}", markup=False, highlight=False)
    last = found["event"]
    console.print(f"last change: {last['when']}, {len(history)} in all, see history.jsonl")


def _tasks(tasks: list[Task]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("task", "labels"):
        table.add_column(title, overflow="fold")
    for title in ("rows", "begun", "learned", "then", "now", "not told"):
        table.add_column(title, justify="right")
    for task in tasks:
        names = ", ".join(task.labels[:4]) + (" ..." if len(task.labels) > 4 else "")
        table.add_row(
            Text(printable(task.name)),
            Text(printable(f"{len(task.labels)}: {names}")),
            f"{task.samples:,}",
            task.begun[:10],
            task.learned[:10],
            *(
                "-" if share is None else f"{100 * share:.1f}"
                for share in (task.then, task.now, task.untold)
            ),
        )
    return table
