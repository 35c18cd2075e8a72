"""One process at a time in a directory: a lock that names its owner and does not outlive it."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from .files import content_of, is_regular

__all__ = ["BusyError", "Owner", "alone_in", "owner_of", "release"]

LOCK = ".lock"
HELD = ".lock.held"  # exists while a process runs on a file system that has no locks


@dataclass(frozen=True)
class Owner:
    """The process that runs in a directory.

    Args:
        pid: Its process id.
        host: The name of its machine.
        since: When it took the lock.
        born: When it started, as the system counts it, because PIDs are recycled; None if unknown.
    """

    pid: int
    host: str
    since: str
    born: str | None

    @classmethod
    def me(cls) -> Owner:
        """This process."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(os.getpid(), socket.gethostname(), now, _born(os.getpid()))

    @classmethod
    def read(cls, path: Path) -> Owner | None:
        """The owner that a lock file names; None if it names none."""
        try:
            return cls.parsed(content_of(path, 10_000))
        except (OSError, ValueError):
            return None

    @classmethod
    def parsed(cls, content: bytes) -> Owner | None:
        """The owner that a note names; None if it names none."""
        try:
            held = json.loads(content)
            owner = cls(*(held[field.name] for field in fields(cls)))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return owner if isinstance(owner.pid, int) and owner.pid > 0 else None

    @property
    def gone(self) -> bool:
        """Whether the process is known to have ended; False if it is on another machine."""
        if self.host != socket.gethostname() or os.name == "nt":
            return False  # on Windows signal 0 would end the process
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:
            pass
        born = _born(self.pid)
        return None not in (self.born, born) and self.born != born

    def __str__(self) -> str:
        """The owner as an error message names it."""
        return f"process {self.pid} on {self.host}, since {self.since}"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a directory; ValueError if another process has it.

    The lock of a process that died does not count.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with alone_in(folder):
    ...     owner_of(folder).pid == os.getpid()
    True
    >>> owner_of(folder) is None
    True
    """
    with _opened(folder) as file:
        locked = _locked(file)
        if locked is False:
            raise BusyError(folder, Owner.read(folder / LOCK), "")
        if locked is None:
            with _held_by_note(folder):
                yield
            return
        with _explaining(folder):
            file.truncate(0)
            file.write(json.dumps(asdict(Owner.me())).encode())
        try:
            yield
        finally:
            with suppress(OSError):
                file.truncate(0)


def owner_of(folder: Path) -> Owner | None:
    """The process that runs in a directory now; None if there is none or it cannot be known."""
    note = Owner.read(folder / HELD)
    if note is not None and not note.gone:
        return note
    try:
        if not is_regular(folder / LOCK):
            return None
        with open(folder / LOCK, "rb", buffering=0) as file:
            return Owner.read(folder / LOCK) if _locked(file) is False else None
    except OSError:
        return None


def release(folder: Path, owner: Owner) -> None:
    """Take away the note of a process that is known to be gone, on another machine too.

    Args:
        folder: the directory.
        owner: the process; a note that names another one stays.
    """
    note = Owner.read(folder / HELD)
    if note is not None and (note.pid, note.host, note.born) == (owner.pid, owner.host, owner.born):
        (folder / HELD).unlink(missing_ok=True)


def _opened(folder: Path) -> IO[bytes]:
    """Open the lock file, and create it if needed; never through a link, and never a pipe."""
    path = folder / LOCK
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with _explaining(folder):
        file = open(os.open(path, flags, 0o666), "r+b", buffering=0)  # noqa: SIM115 (the caller closes it)
        held = os.fstat(file.fileno())
        problem = ""
        if not stat.S_ISREG(held.st_mode):
            problem = "is not a regular file"
        elif held.st_nlink > 1:  # it would be emptied under its other name too
            problem = "is a hard link to another file"
        if problem:
            file.close()
            raise ValueError(f"{path} {problem}: remove it, or choose another output directory.")
        return file


@contextmanager
def _explaining(folder: Path) -> Iterator[None]:
    """Turn an OSError into a ValueError that says what to do."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as reason:
        if reason.errno == errno.ELOOP:
            raise ValueError(
                f"{folder / LOCK} is a symbolic link: remove it, "
                "or choose another output directory."
            ) from reason
        raise ValueError(
            f"{folder} cannot be written ({reason.strerror}): choose another output directory."
        ) from reason


class BusyError(ValueError):
    """Another process runs in the directory."""

    def __init__(self, folder: Path | str, owner: Owner | None, advice: str) -> None:
        who = f" ({owner})" if owner else ""
        super().__init__(
            f"Another process is running in {folder}{who}: wait for it, "
            f"or choose another output directory{advice}."
        )


def _locked(file: IO[bytes]) -> bool | None:
    """Take the system's lock on an open file, which ends with the process; None without locks."""
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True


@contextmanager
def _held_by_note(folder: Path) -> Iterator[None]:
    """Hold a directory without system locks: by a file that only one process can create."""
    path = folder / HELD
    owner = Owner.read(path)
    if owner is not None and owner.gone:
        path.unlink(missing_ok=True)
    try:
        with _explaining(folder), open(path, "x", encoding="utf-8") as file:
            file.write(json.dumps(asdict(Owner.me())))
    except FileExistsError as reason:
        raise BusyError(
            folder, Owner.read(path), f"; if that process is gone, delete {path}"
        ) from reason
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _born(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None where the system does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
