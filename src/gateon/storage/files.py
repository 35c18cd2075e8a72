"""Files and names from elsewhere: bounded reads of regular files, and text safe to print."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["CheckpointWarning", "check_utf8", "content_of", "is_regular", "printable"]


class CheckpointWarning(RuntimeWarning):
    """The last checkpoint is damaged, so the one before it is used."""


def is_regular(path: Path) -> bool:
    """Whether it is a regular file, or a link to one: reading a pipe or a device may never end."""
    return stat.S_ISREG(os.stat(path).st_mode)


def content_of(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes; ValueError for anything else.

    >>> content_of(Path(os.devnull), 10)
    Traceback (most recent call last):
    ...
    ValueError: it is no regular file
    """
    # Without blocking, so that a pipe is opened at once.
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    held = os.fstat(number)
    if not stat.S_ISREG(held.st_mode):  # a directory too, which Python would name by its number
        os.close(number)
        raise ValueError("it is no regular file")
    with open(number, "rb") as file:
        content = file.read(min(held.st_size, most) + 1)
        if len(content) > most:
            raise ValueError(f"it has more than {most} bytes")
        return content


def printable(text: object) -> str:
    r"""The text on one line, with control characters written as escapes.

    >>> print(printable("a\x1b[2Jb\nc"), printable("größer"))
    a\x1b[2Jb\nc größer
    """
    shown = str(text)
    return (
        shown
        if shown.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
    )


def check_utf8(path: object) -> None:
    """Refuse a path whose bytes are no text: records and specifications could not name it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{printable(path)} is not valid UTF-8: rename it, or give another path."
        ) from None
