"""gateon undo."""

from __future__ import annotations

from ..life.model import opened
from ..storage.files import printable
from .parse import Directory
from .printing import page_of

__all__ = ["command"]


def command(directory: Directory) -> None:
    """Go back to the model as it was before the last learn.

    The last three can be undone.

    Args:
        directory: of the model.
    """
    model = opened(directory)
    undone, now = model.undo()
    page_of(directory, "current")
    names = ", ".join(task.name for task in model.tasks)
    print(printable(f"{directory}: back from version {undone} to {now}, which knows {names}"))
