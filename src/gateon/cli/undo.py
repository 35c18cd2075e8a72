"""gateon undo."""

from __future__ import annotations

from pathlib import Path

import tyro

from ..life.model import load
from ..storage.files import printable

__all__ = ["command"]


def command(directory: tyro.conf.Positional[Path]) -> None:
    """Go back to the model as it was before the last learn; the last three can be undone.

    Args:
        directory: of the model.
    """
    model = load(directory)
    undone, now = model.undo()
    names = ", ".join(task.name for task in model.tasks)
    print(printable(f"{directory}: back from version {undone} to {now}, which knows {names}"))
