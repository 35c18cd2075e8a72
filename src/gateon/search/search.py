"""A whole search: its trials carried out, its record written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from ..options.kinds import Within, checked
from ..runs.folder import folder_made
from ..runs.progress import Progress
from ..storage.lock import alone_in
from ..workers.board import Board, NoBoard
from ..workers.engine import Engine
from .asked import Search
from .record import content_of, write
from .study import Trials

__all__ = ["search_settings"]

Count = Annotated[int, Within(1, 100_000)]


def search_settings(
    search: Search,
    trials: int,
    out: Path,
    *,
    engine: Engine | None = None,
    command: str = "",
    progress: Callable[[], Progress | None] = lambda: None,
    board: Callable[[], Board] = NoBoard,
) -> dict[str, Any]:
    """Try settings, and write search.json and search.md; the content of the first.

    The same call goes on with a search that was stopped, and one with more trials adds to it.
    Whatever stops it, what was found until then is written.

    Args:
        search: what is searched.
        trials: how many in all.
        out: the output directory.
        engine: where the runs are done; by default one after another in this process.
        command: what runs it again, for the record.
        progress: makes the progress display of a run, where they are done in this process.
        board: makes the display of all runs, where workers do them.
    """
    checked("trials", trials, Count)
    engine = engine or Engine()
    folder = folder_made(out.resolve() if engine.on else out)
    with alone_in(folder):
        plan = Trials(search, trials, folder)
        try:
            engine.carry_out(plan, folder, progress=progress, board=board)
        finally:
            content = content_of(search, plan.found(), command)
            write(content, folder)
    return content
