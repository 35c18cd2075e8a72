"""Untrusted files and names: read regular files only, up to a size, and print names safely."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["CheckpointWarning", "check_utf8", "content_of", "is_regular", "printable"]


class CheckpointWarning(RuntimeWarning):
    """The last checkpoint is damaged, so the one before it is used."""


def is_regular(path: Path) -> bool:
    """Whether it is a regular file or a link to one; reading a pipe or a device may never end."""
    return stat.S_ISREG(os.stat(path).st_mode)


def content_of(path: Path, most: int) -> bytes:
    """Read a regular file; ValueError if it is anything else or too large.

    Args:
        path: The file.
        most: The largest number of bytes it may have.

    >>> content_of(Path(os.devnull), 10)
    Traceback (most recent call last):
    ...
    ValueError: it is not a regular file
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe must not block
    held = os.fstat(descriptor)
    if not stat.S_ISREG(held.st_mode):  # before open(), which names a directory by its number
        os.close(descriptor)
        raise ValueError("it is not a regular file")
    with open(descriptor, "rb") as file:
        content = file.read(min(held.st_size, most) + 1)
        if len(content) > most:
            raise ValueError(f"it has more than {most} bytes")
        return content


def printable(text: object) -> str:
    r"""The text on one line, with control characters escaped so that no terminal obeys them.

    >>> print(printable("a\x1b[2Jb\nc"), printable("größer"))
    a\x1b[2Jb\nc größer
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def check_utf8(path: object) -> None:
    """Raise ValueError for a path that is not UTF-8: records could not name it.

    >>> check_utf8("results/run")
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{printable(path)} is not valid UTF-8: rename it, or give another path."
        ) from None
