"""What all machines of a cluster must have in common, so that a run can resume on any of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from ..runs.environment import environment
from ..runs.identity import NUMERICS
from ..storage.checkpoint import whole_file
from ..storage.remote import Remote, StorageError

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
        folder: the output directory, or where it is at a URL.
        word: what is written in a file there.
    """

    versions: dict[str, str]
    folder: Path | Remote
    word: str

    @property
    def mark(self) -> str:
        """The name of that file."""
        return f".seen-{self.word[:8]}"

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
            seen = self._seen()
        except (StorageError, ImportError) as reason:
            raise ValueError(f"The node {node} cannot use --out: {reason}") from reason
        if not seen:
            raise ValueError(
                f"The node {node} does not see {self.folder} of this machine: "
                "give --out a directory on storage that all nodes share."
            )

    def _seen(self) -> bool:
        """Whether the file is there; at a URL also write something, which may not be allowed."""
        if isinstance(self.folder, Remote):
            tried = f"{self.mark}-{uuid4().hex}"
            seen = self.folder.read(self.mark) == self.word.encode()
            if seen:
                self.folder.write(tried, b"")
                self.folder.remove(tried)
            return seen
        try:
            return (self.folder / self.mark).read_text(encoding="utf-8") == self.word
        except OSError:
            return False


@contextmanager
def alike(folder: Path | Remote) -> Iterator[Alike]:
    """Mark a directory, so that other machines can tell whether they see the same one.

    >>> import tempfile
    >>> with alike(Path(tempfile.mkdtemp())) as wanted:
    ...     wanted.check()
    """
    wanted = Alike(versions(), folder, uuid4().hex)
    if isinstance(folder, Remote):
        folder.write(wanted.mark, wanted.word.encode())
    else:
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / wanted.mark) as aside:
            aside.write_text(wanted.word, encoding="utf-8")
    try:
        yield wanted
    finally:
        if isinstance(folder, Remote):
            with suppress(StorageError):
                folder.remove(wanted.mark)
        else:
            (folder / wanted.mark).unlink(missing_ok=True)
