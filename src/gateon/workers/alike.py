"""What all machines of a cluster must have in common, so that a run can resume on any of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from ..runs.environment import environment
from ..runs.identity import NUMERICS
from ..storage.checkpoint import whole_file

__all__ = ["Alike", "alike", "versions"]


def versions() -> dict[str, str]:
    """What decides the numbers of a run, besides its options and the kind of processor.

    >>> list(versions())
    ['gateon', 'commit', 'numerics', 'torch']
    """
    here: dict[str, Any] = environment()
    return {
        "gateon": str(here["versions"]["gateon"]),
        "commit": str(here["commit"]),
        "numerics": str(NUMERICS),
        "torch": str(here["versions"]["torch"]),
    }


@dataclass(frozen=True)
class Alike:
    """What the planning machine has, for the others to compare.

    Args:
        versions: of what decides the numbers.
        mark: a file in the output directory.
        word: what is written in it.
    """

    versions: dict[str, str]
    mark: Path
    word: str

    def check(self) -> None:
        """Compare with the machine this runs on: ValueError says what is different, and where."""
        here, node = versions(), socket.gethostname()
        for what, wanted in self.versions.items():
            if here[what] != wanted:
                of = "gateon of " if what in ("commit", "numerics") else ""
                raise ValueError(
                    f"The node {node} has {of}{what} {here[what]}, and this machine {wanted}: "
                    "install the same on every node."
                )
        try:
            seen = self.mark.read_text(encoding="utf-8") == self.word
        except OSError:
            seen = False
        if not seen:
            raise ValueError(
                f"The node {node} does not see {self.mark.parent} of this machine: "
                "give --out a directory on storage that all nodes share."
            )


@contextmanager
def alike(folder: Path) -> Iterator[Alike]:
    """Mark a directory, so that other machines can tell whether they see the same one.

    >>> import tempfile
    >>> with alike(Path(tempfile.mkdtemp())) as wanted:
    ...     wanted.check()
    """
    folder.mkdir(parents=True, exist_ok=True)
    word = uuid4().hex
    mark = folder / f".seen-{word[:8]}"
    with whole_file(mark) as aside:
        aside.write_text(word, encoding="utf-8")
    try:
        yield Alike(versions(), mark, word)
    finally:
        mark.unlink(missing_ok=True)
