"""A directory of one run and its like at a URL: whatever is saved in one appears in the other."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from ..runs.folder import is_checkpoint
from ..storage.remote import PART, Remote, StorageError

__all__ = ["OWNER", "Mirror", "fetch_small", "patiently"]

OWNER = ".owner"  # names the mirror that may write to a directory at a URL
JOURNAL = ".journal"  # ends the name of what a plan goes on from
EVERY = 1.0  # seconds between two looks at what was saved
PATIENCE = 300.0  # seconds that storage may fail before a run stops
PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds between attempts where nothing can go on without storage

Stamp = tuple[int, int, int]  # differs for another file of the same name


class Mirror:
    """Keeps the files of a directory at a URL, each of them whole, while they change.

    A checkpoint that appears there is never newer than the trace beside it, and never gone before
    the next one is there. Only the latest mirror of a URL writes: one whose machine was taken for
    lost, and was not, finds that out and stops.

    What lies in directories of its own, such as the events of TensorBoard, grows all the time, and
    goes along when something else does.

    Args:
        folder: the directory here.
        remote: its like.
        whole: False where the URL also has files that are none of ours: then only journals are
            fetched, nothing is watched, and what is strange there stays.

    >>> import tempfile
    >>> here, there = Path(tempfile.mkdtemp()), Remote("memory://mirrored")
    >>> mirror = Mirror(here, there)
    >>> mirror.begin()
    >>> _ = (here / "note").write_text("hello")
    >>> mirror.finish()
    >>> there.read("note")
    b'hello'
    """

    def __init__(self, folder: Path, remote: Remote, *, whole: bool = True) -> None:
        self.folder, self.remote, self.whole = folder, remote, whole
        self.word = uuid4().hex
        self.sent: dict[str, Stamp] = {}
        self.aside = folder.with_name(f".sending-{folder.name}")
        self.taken = False  # by a later mirror
        self.failing: tuple[float, StorageError] | None = None  # since when, and why
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Take the directory at the URL over, fetch what it holds, and watch what is saved here."""
        for made in (self.folder, self.aside):
            made.mkdir(parents=True, exist_ok=True)
        patiently(lambda: self.remote.write(OWNER, self.word.encode()))
        patiently(self._fetch)
        if self.whole:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def check(self) -> bool:
        """Whether this mirror may still write; StorageError if it could not for too long."""
        if self.failing is not None and time.monotonic() - self.failing[0] > PATIENCE:
            raise self.failing[1]
        return not self.taken

    def sync(self, *, last: bool = False) -> None:
        """Bring over what was saved, added or removed since the last time."""
        # A trace is saved before its checkpoint, and a record after both. Seen in the opposite
        # order, and sent in that one, whatever is there belongs together.
        found = {name: self._set_aside(name) for name in sorted(self._here(), key=_late)}
        changed = [name for name, stamp in found.items() if stamp and self.sent.get(name) != stamp]
        gone = [name for name in self.sent if "/" not in name and found.get(name) is None]
        if self.whole and (changed or last):
            inner = {name: self._set_aside(name) for name in self._inside()}
            found |= inner
            changed += [n for n, stamp in inner.items() if stamp and self.sent.get(n) != stamp]
        if not changed and not gone:
            return
        if not self._is_mine():
            self.taken = True
            return
        for name in reversed(changed):
            self.remote.send(self.aside / name, name)
            self.sent[name] = found[name] or (0, 0, 0)
        for name in gone:
            self.remote.remove(name)
            del self.sent[name]

    def finish(self) -> None:
        """Bring everything over, and leave nothing there that is not here."""
        self.stop()
        patiently(lambda: self.sync(last=True))
        if self.whole and not self.taken:
            for name in self.remote.files():
                if not name.startswith(".") and name not in self.sent:
                    self.remote.remove(name)

    def stop(self) -> None:
        """Watch no more; what is removed here from now on stays there."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(EVERY) and not self.taken:
            try:
                self.sync()
                self.failing = None
            except StorageError as reason:
                since = time.monotonic() if self.failing is None else self.failing[0]
                self.failing = since, reason

    def _fetch(self) -> None:
        for name in self.remote.files():
            if name.endswith(PART):  # of a writer that died
                self.remote.remove(name)
            elif name.endswith(JOURNAL) or (self.whole and not name.startswith(".")):
                self._fetch_one(name)
        for inner in self.remote.folders() if self.whole else []:
            (self.folder / inner).mkdir(exist_ok=True)
            for name in self.remote.below(inner).files():
                self._fetch_one(f"{inner}/{name}")

    def _fetch_one(self, name: str) -> None:
        self.remote.fetch(name, self.folder / name)
        self.sent[name] = _stamp(self.folder / name)

    def _inside(self) -> list[str]:
        found = [path for path in self.folder.glob("*/*") if path.is_file()]
        return [path.relative_to(self.folder).as_posix() for path in found]

    def _here(self) -> list[str]:
        with os.scandir(self.folder) as found:
            return [
                one.name
                for one in found
                if one.is_file(follow_symlinks=False)
                and not one.name.startswith(".")
                and not one.name.endswith(PART)
            ]

    def _set_aside(self, name: str) -> Stamp | None:
        """A second name for a file, which stays the same when the first is given to another one."""
        path, aside = self.folder / name, self.aside / name
        aside.parent.mkdir(exist_ok=True)
        aside.unlink(missing_ok=True)
        try:
            os.link(path, aside)
        except FileNotFoundError:  # it was removed meanwhile
            return None
        except OSError:  # no links here
            with suppress(FileNotFoundError):
                shutil.copy2(path, aside)
                return _stamp(path)
            return None
        return _stamp(aside)

    def _is_mine(self) -> bool:
        return self.remote.read(OWNER) == self.word.encode()


def fetch_small(remote: Remote, folder: Path) -> None:
    """Copy all files of a run but its checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in remote.files():
        if not name.startswith(".") and not name.endswith(PART) and not is_checkpoint(name):
            remote.fetch(name, folder / name)


def patiently(action: Callable[[], None]) -> None:
    """Do what storage may refuse for a moment; StorageError if it refuses for longer."""
    for pause in PAUSES:
        try:
            return action()
        except StorageError:
            time.sleep(pause)
    return action()


def _late(name: str) -> int:
    """How late in a save a file is written, the last first."""
    return 0 if name == "record.json" else 1 if is_checkpoint(name) else 2


def _stamp(path: Path) -> Stamp:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns
