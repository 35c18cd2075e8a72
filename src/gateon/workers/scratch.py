"""A piece done in a directory of this machine alone, whose files are kept at a URL."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from ..runs.folder import keep_only
from ..runs.stopping import stoppable
from ..storage.lock import BusyError, alone_in
from ..storage.remote import Remote, StorageError
from .mirror import Mirror, fetch_small, patiently
from .plan import Piece
from .telling import End, Telling, outcome

__all__ = ["done_at", "scratch"]

PREFIX = "gateon-at-work-"


def done_at(
    remote: Remote, piece: Piece, send: Callable[[str, Sequence[Any]], bool]
) -> tuple[End, Any]:
    """Do a piece whose directory is at a URL; how it ended, and its result or its error.

    Args:
        remote: the directory of all pieces.
        piece: its own directory is fetched, and so are those of the pieces it comes after, but for
            their checkpoints.
        send: as `Telling` takes it.
    """
    with scratch() as root:
        mirror = Mirror(root / piece.name, remote.below(piece.name))
        telling = Telling(lambda event, told: send(event, told) and mirror.check())
        try:
            for name in piece.after:
                patiently(partial(fetch_small, remote.below(name), root / name))
            mirror.begin()
            end = outcome(partial(piece.do, root), telling)
            if end[0] == "dropped":
                keep_only(mirror.folder, [])
            with stoppable():  # what was learned is kept, whatever comes in between
                mirror.finish()
        except StorageError as reason:
            return "failed", reason
        finally:
            mirror.stop()  # before its directory is removed
        return ("dropped", None) if mirror.taken else end


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory on this machine that is gone afterwards; those of processes that died go too."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(BusyError, ValueError, OSError), alone_in(left):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with alone_in(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
