"""One process at a time in a directory: a lock that says whose it is and does not outlive its owner."""

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

__all__ = ["Owner", "alone_in", "owner_of"]

LOCK = ".lock"
HELD = (
    ".lock.held"  # there only while a process runs, and only where the file system knows no locks
)


@dataclass(frozen=True)
class Owner:
    """The process that runs in a directory."""

    pid: int
    host: str
    since: str
    # when the process began, as the system counts it: numbers of processes are used again
    born: str | None

    @classmethod
    def me(cls) -> Owner:
        """This process, from now on."""
        return cls(
            os.getpid(),
            socket.gethostname(),
            datetime.now(UTC).isoformat(timespec="seconds"),
            _born(os.getpid()),
        )

    @classmethod
    def read(cls, path: Path) -> Owner | None:
        """The one a lock names, if it names one."""
        try:
            held = json.loads(content_of(path, 10_000))
            owner = cls(*(held[field.name] for field in fields(cls)))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return owner if isinstance(owner.pid, int) and owner.pid > 0 else None

    @property
    def gone(self) -> bool:
        """Whether the process is known to have ended; of one on another machine nothing is known."""
        if (
            self.host != socket.gethostname() or os.name == "nt"
        ):  # where signal 0 would end the process asked about
            return False
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:
            pass
        return None not in (self.born, _born(self.pid)) and self.born != _born(self.pid)

    def __str__(self) -> str:
        """As an error names it."""
        return f"process {self.pid} on {self.host}, since {self.since}"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the directory while this process is in here; a process that died holds nothing.

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
            raise _Busy(folder, Owner.read(folder / LOCK), "")
        if locked is None:
            with _held_by_note(folder):
                yield
            return
        with _told(folder):
            file.truncate(0)
            file.write(json.dumps(asdict(Owner.me())).encode())
        try:
            yield
        finally:
            with suppress(OSError):
                file.truncate(0)


def owner_of(folder: Path) -> Owner | None:
    """The process that runs in a directory now, as far as it can be told."""
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


def _opened(folder: Path) -> IO[bytes]:
    """The file that is locked, made if need be; never one that a link leads to, and never a pipe."""
    path = folder / LOCK
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with _told(folder):
        file = open(os.open(path, flags, 0o666), "r+b", buffering=0)  # noqa: SIM115 (closed by the one who asked)
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise ValueError(
                f"{path} is no regular file: remove it, or choose another output directory."
            )
        if os.fstat(file.fileno()).st_nlink > 1:  # it would be emptied under its other name too
            file.close()
            raise ValueError(
                f"{path} is a hard link to another file: remove it, or choose another output directory."
            )
        return file


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """What the system refuses, in a sentence."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as reason:
        if reason.errno == errno.ELOOP:
            raise ValueError(
                f"{folder / LOCK} is a symbolic link: remove it, or choose another output directory."
            ) from reason
        raise ValueError(
            f"{folder} cannot be written ({reason.strerror}): choose another output directory."
        ) from reason


class _Busy(ValueError):  # noqa: N818 (a ValueError to everybody else)
    def __init__(self, folder: Path, owner: Owner | None, advice: str) -> None:
        who = f" ({owner})" if owner else ""
        super().__init__(
            f"Another process is running in {folder}{who}: wait for it, or choose another output directory{advice}."
        )


def _locked(file: IO[bytes]) -> bool | None:
    """Take the system's lock on an open file, which goes with the process; None where there are no such locks."""
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
    """Without locks of the system: a file that only one process can create, and that names it."""
    path = folder / HELD
    owner = Owner.read(path)
    if owner is not None and owner.gone:
        path.unlink(missing_ok=True)
    try:
        with _told(folder), open(path, "x", encoding="utf-8") as file:
            file.write(json.dumps(asdict(Owner.me())))
    except FileExistsError as reason:
        raise _Busy(
            folder, Owner.read(path), f"; if that process is gone, delete {path}"
        ) from reason
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _born(pid: int) -> str | None:
    """When a process began, in the system's own count; None where it does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
