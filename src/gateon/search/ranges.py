"""What is searched: ranges of numbers and choices among values, by the option's dotted name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..options.declared import Option
from ..options.kinds import checked, flag, item_of, nearest, read

__all__ = ["Choice", "Range", "Span", "edges", "read_over"]

NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
SPAN = re.compile(rf"({NUMBER})\.\.({NUMBER})(:log)?")
NEAR = 0.02  # of a span: a value as near to an end as this touches it


@dataclass(frozen=True)
class Span:
    """All numbers from `low` to `high`, evenly or evenly by their logarithm."""

    low: float
    high: float
    log: bool
    whole: bool

    @property
    def ends(self) -> tuple[Any, Any]:
        """The first and the last value."""
        return self.low, self.high

    def edge(self, value: float) -> str | None:
        """Whether a value lies at an end: "low", "high" or None.

        >>> Span(0.001, 1.0, log=True, whole=False).edge(0.00105)
        'low'
        """
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        near = 0.0 if self.whole else NEAR * (high - low)
        return "low" if at - low <= near else "high" if high - at <= near else None


@dataclass(frozen=True)
class Choice:
    """Some values, as they were written."""

    words: tuple[str, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        """All of them."""
        return self.words


Range = Span | Choice


def read_over(text: str, known: Mapping[str, Option]) -> dict[str, Range]:
    """What is searched, from the words of --over.

    Args:
        text: NAME=LOW..HIGH, NAME=LOW..HIGH:log or NAME=VALUE|VALUE|..., separated by commas.
        known: the options there are, by dotted name.

    >>> lr = {"training.lr": Option("lr", float, 5e-3, "of the optimizer.")}
    >>> read_over("training.lr=1e-4..0.1:log", lr)
    {'training.lr': Span(low=0.0001, high=0.1, log=True, whole=False)}
    >>> read_over("training.lr=0.1|0.2", lr)
    {'training.lr': Choice(words=('0.1', '0.2'))}
    """
    found: dict[str, Range] = {}
    for part in re.split(r",(?=\s*[\w.-]+=)", text):
        name, equals, values = part.strip().partition("=")
        name = name.removeprefix("--").replace("-", "_")
        if not equals or not values:
            raise ValueError(
                f"--over lists what is searched, such as method.rate=0.001..0.3:log or "
                f"training.batch=100|200, got {part.strip()!r}."
            )
        if name not in known:
            raise ValueError(
                f"--over: there is no option {name!r}{nearest(name, known)} for what was chosen: "
                "see gateon search STREAM --method NAME --help."
            )
        if name in found:
            raise ValueError(f"--over names {name} twice: give it once.")
        found[name] = _range(name, values, known[name])
    return found


def _range(name: str, values: str, option: Option) -> Range:
    matched = SPAN.fullmatch(values)
    if matched is None:
        words = tuple(word.strip() for word in values.split("|"))
        if ".." in values or len({*words}) < max(2, len(words)):
            raise ValueError(
                f"--over {name}={values} must be LOW..HIGH, LOW..HIGH:log, "
                "or at least two different values separated by |."
            )
        for word in words:
            value_of(name, word, option)
        return Choice(words)
    low, high = (value_of(name, word, option) for word in matched.groups()[:2])
    if type(low) not in (int, float) or type(high) not in (int, float):
        raise ValueError(f"--over {name}: {flag(name)} is no number: list its values, as in a|b.")
    if low >= high:
        raise ValueError(f"--over {name}={values}: the first number must be below the second.")
    log = matched[3] is not None
    if log and low <= 0:
        raise ValueError(f"--over {name}={values}: a logarithm needs numbers above 0.")
    whole = isinstance(low, int) and isinstance(high, int)
    return Span(low, high, log, whole)


def value_of(name: str, word: str, option: Option) -> Any:
    """The value of an option that a word stands for; lists are separated by spaces.

    >>> value_of("network.hidden", "400 400", Option("hidden", tuple[int, ...], (9,), "widths."))
    (400, 400)
    """
    item = item_of(option.kind)
    if item is not None and word != "none":
        return checked(name, tuple(read(one, item) for one in word.split()), option.kind)
    return checked(name, read(word, option.kind), option.kind)


def edges(over: Mapping[str, Range], settings: Mapping[str, Any]) -> dict[str, str]:
    """The ends of ranges that settings touch: the best may lie beyond.

    >>> edges({"training.lr": Span(0.0, 1.0, log=False, whole=False)}, {"training.lr": 0.99})
    {'training.lr': 'high'}
    """
    found = {
        name: one.edge(settings[name])
        for name, one in over.items()
        if isinstance(one, Span) and name in settings
    }
    return {name: end for name, end in found.items() if end is not None}
