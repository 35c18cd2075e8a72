"""gateon show."""

from __future__ import annotations

import json

from rich.console import Console, Group

from ..life.measuring import more_tasks
from ..life.model import about
from ..life.task import Task
from ..report.fitting import fitted
from ..storage.files import printable
from .parse import JSON, Directory

__all__ = ["command"]

SHOWN = 8  # labels of a task


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

    def line(words: str) -> None:
        console.print(printable(words), markup=False, highlight=False, soft_wrap=True)

    line(f"{directory}: version {found['version']}, reads {found['kind']}")
    console.print(_table(tasks, console.width))
    for task in tasks:
        line(f"labels of {task.name}: {_some(task.labels)}")
    line(f"room left by layer: {', '.join(f'{n} {s:.0%}' for n, s in found['room'].items())}")
    more = more_tasks(found["room"], tasks)
    if more is not None:
        line(f"about {more} more {'task' if more == 1 else 'tasks'} like these will fit")
    changes = "1 change" if len(history) == 1 else f"{len(history)} changes"
    line(f"{changes}, the last on {history[-1]['when']}: see history.jsonl")


def _some(labels: tuple[str, ...]) -> str:
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return ", ".join(labels[:SHOWN]) + more


def _table(tasks: list[Task], width: int) -> Group:
    rows = [
        [
            task.name,
            str(len(task.labels)),
            f"{task.samples:,}",
            task.begun[:10],
            task.learned[:10],
            *(
                "-" if share is None else f"{100 * share:.1f}"
                for share in (task.then, task.now, task.untold)
            ),
        ]
        for task in tasks
    ]
    titles = ("task", "labels", "rows", "begun", "learned", "then", "now", "not told")
    return fitted(titles, rows, width)
