"""The directory of a run: one process at a time, one run for ever."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .record import Record

__all__ = ["alone_in", "check_same", "finished_run", "folder_made"]


def folder_made(folder: Path) -> Path:
    """The directory, made if need be, if it can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".lock").touch()
    except OSError as reason:
        raise ValueError(f"{folder} cannot be written ({reason.strerror}): choose another output directory.") from reason
    return folder


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One run a directory at a time; the lock goes with the process that holds it."""
    with open(folder / ".lock", "w") as lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such locks on Windows
            pass
        except BlockingIOError as reason:
            raise ValueError(
                f"Another process is running in {folder}: wait for it, or choose another output directory."
            ) from reason
        yield


def finished_run(folder: Path, asked: Record) -> Record | None:
    """The record in the directory, if there is one; that of another run is an error."""
    path = folder / "record.json"
    if not path.exists():
        return None
    record = Record.load(path)
    check_same(record.specification, record.data, asked, path)
    return record


def check_same(specification: dict[str, Any], data: dict[str, Any], asked: Record, path: Path) -> None:
    """What was found must be the run asked for, on the same data: files may change, and stand-ins make room for the real ones."""
    wanted = asked.specification
    differs = next((key for key in {**wanted, **specification} if _plain(specification.get(key)) != _plain(wanted.get(key))), None)
    if differs is not None:
        other = f"another run, with {differs} {specification.get(differs)!r} and not {wanted.get(differs)!r}"
    elif _plain(data.get("sha256")) != _plain(asked.data.get("sha256")):
        other = f"a run on other data, {data.get('name')} from {data.get('from')}"
    else:
        return
    raise ValueError(f"{path.parent} holds {other}: choose another output directory; nothing was changed.")


def _plain(value: Any) -> Any:
    """As JSON would give it back."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and math.isnan(value):
        return None
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
