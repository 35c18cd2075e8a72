"""Numbers and sentences as pages write them."""

from __future__ import annotations

from typing import Any, Literal

__all__ = ["Facts", "Mood", "count", "finding", "percent", "points", "several", "size", "time"]

Facts = dict[str, Any]
Mood = Literal["good", "plain", "warn", "bad"]


def finding(head: str, says: str, to: str = "", mood: Mood = "plain") -> Facts:
    """An answer at the top of a page.

    Args:
        head: the figure or the word it comes down to.
        says: the sentence.
        to: the section that has the rest.
        mood: whether that is good news.
    """
    return {"head": head, "says": says, "to": to, "mood": mood}


def percent(share: float, digits: int = 1) -> str:
    """A share in percent.

    >>> percent(0.98765), percent(-0.00001)
    ('98.8 %', '0.0 %')
    """
    return f"{_number(100 * share, digits)} %"


def points(share: float, digits: int = 1) -> str:
    """A difference of shares.

    >>> points(0.0123), points(0.01)
    ('1.2 points', '1.0 points')
    """
    return f"{_number(100 * share, digits)} points"


def _number(value: float, digits: int) -> str:
    """With a true minus, and none in front of zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def count(number: int, noun: str) -> str:
    """A number of things.

    >>> count(1, "task"), count(1200, "task")
    ('1 task', '1,200 tasks')
    """
    return several(number, noun, f"{noun}s")


def several(number: int, one: str, many: str) -> str:
    """A number of things whose plural is not that of most.

    >>> several(2, "batch", "batches")
    '2 batches'
    """
    return f"{number:,} {one if number == 1 else many}"


def time(seconds: float) -> str:
    """A time in the unit one would say it in.

    >>> time(3.21), time(75), time(7000), time(200000)
    ('3.2 s', '75 s', '1 h 57 min', '55 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours < 10 else f"{hours} h"


def size(number: float) -> str:
    """Bytes in the unit one would say them in.

    >>> size(812), size(2_510_000), size(31_000_000)
    ('812 bytes', '2.5 MB', '31 MB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{number / factor:.{1 if number < 10 * factor else 0}f} {unit}"
    return f"{number:.0f} bytes"
