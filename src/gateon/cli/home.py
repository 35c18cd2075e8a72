"""Where --out is: a directory, or a URL with a copy of its small files here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..storage.files import printable
from ..workers.store import Store, stored_at

__all__ = ["Home", "home"]


@dataclass(frozen=True)
class Home:
    """The directory of many runs.

    Args:
        folder: on this machine.
        store: the URL it is a copy of, if --out is one.
    """

    folder: Path
    store: Store | None = None

    def shown(self, path: Path) -> str:
        """Where a file of it is, as the user knows it."""
        return printable(path if self.store is None else self.store.shown(path))


@contextmanager
def home(out: Path | str, on: str | None, *, reads: bool = False) -> Iterator[Home]:
    """Hold the place that --out names, if it is a URL; a path has locks of its own.

    Args:
        out: a path or, as a string, a URL.
        on: the value of --on, which a URL needs.
        reads: whether nothing is run or written.
    """
    if isinstance(out, Path):
        yield Home(out)
        return
    if on is None and not reads:
        raise ValueError(f"--out {out} needs --on ray: give it, or give --out a path.")
    with stored_at(out, claim=not reads, told=_tell) as store:
        yield Home(store.folder, store)


def _tell(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
