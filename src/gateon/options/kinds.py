"""Kinds of values: which ones an option takes, and the error that says so."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from operator import or_
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

__all__ = [
    "Count",
    "Counts",
    "Filled",
    "Positive",
    "Share",
    "Within",
    "as_plain",
    "checked",
    "flag",
    "flag_off",
    "item_of",
    "members",
    "nearest",
    "plain",
    "read",
    "words_of",
]

MOST = 10**9  # of anything counted: more would never finish
WORDS = {
    int: "a whole number",
    float: "a finite number",
    str: "a string",
    bool: "true or false",
    tuple: "a list",
    Mapping: "numbers by pattern such as first=0.04,*=0.004",
}


@dataclass(frozen=True)
class Within:
    """The range of a number, as part of an annotation.

    >>> Within(1, 5).wrong(0), Within(1, 5).wrong(2)
    ('must be at least 1, got 0', None)
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def wrong(self, value: float) -> str | None:
        """What is wrong with a value, if anything."""
        if self.least is not None and value < self.least:
            return f"must be at least {self.least}, got {value}"
        if self.most is not None and value > self.most:
            return f"must be at most {self.most}, got {value}"
        if self.above is not None and value <= self.above:
            return f"must be above {self.above}, got {value}"
        if self.below is not None and value >= self.below:
            return f"must be below {self.below}, got {value}"
        return None


@dataclass(frozen=True)
class Filled:
    """That a list has at least one value, as part of an annotation."""

    def wrong(self, value: Sequence[Any]) -> str | None:
        """What is wrong with a list, if anything."""
        return None if value else "must have at least one value"


Count = Annotated[int, Within(1, MOST)]
Counts = Annotated[tuple[Count, ...], Filled()]
Share = Annotated[float, Within(least=0, below=1)]
Positive = Annotated[float, Within(above=0)]


def flag(name: str) -> str:
    """An option as it is written on the command line.

    >>> flag("training.keep_optimizer")
    '--training.keep-optimizer'
    """
    return "--" + name.replace("_", "-")


def flag_off(name: str) -> str:
    """How a switch is turned off that is on by default.

    >>> flag_off("stream.by_date")
    '--stream.no-by-date'
    """
    section, _, option = name.rpartition(".")
    return flag(f"{section}.no-{option}")


def nearest(name: str, known: Collection[str]) -> str:
    """A hint at what may have been meant.

    >>> nearest("sead", ["seed", "steps"])
    ", perhaps 'seed'"
    """
    close = get_close_matches(name, known, 1)
    return f", perhaps {close[0]!r}" if close else ""


def members(kind: Any) -> tuple[Any, ...]:
    """The members of a union, or the one kind it is.

    >>> members(int | None)
    (<class 'int'>, <class 'NoneType'>)
    """
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def plain(kind: Any) -> Any:
    """The part of an annotation that can be written in a file: no callables, tensors or objects.

    Returns None if nothing is left.

    >>> plain(object | float | None)
    float | None
    """
    kept = [one for one in map(_plain_member, members(kind)) if one is not None]
    if not kept or kept == [NoneType]:
        return None
    return reduce(or_, kept)


def _plain_member(kind: Any) -> Any:
    origin = get_origin(kind)
    if origin is Annotated:
        return kind if plain(get_args(kind)[0]) is not None else None
    if origin in (Literal, Union, UnionType):
        return kind
    if origin in (tuple, Sequence):
        item: Any = plain(get_args(kind)[0])
        fixed = origin is tuple and ... not in get_args(kind)
        return None if item is None else kind if fixed else tuple[item, ...]
    if origin is Mapping:
        item = plain(get_args(kind)[1])
        return None if item is None else GenericAlias(Mapping, (str, item))
    return kind if kind in (bool, int, float, str, NoneType) else None


def checked(name: str, value: Any, kind: Any) -> Any:
    """The value as its kind has it, or an error that says what it may be.

    Lists become tuples, whole numbers floats, "none" None and words patterns where those are meant.

    >>> checked("training.batch", 0, Count)
    Traceback (most recent call last):
    ...
    ValueError: --training.batch must be at least 1, got 0.
    """
    wrong: str | None = None
    if isinstance(value, str):
        if value == "none" and NoneType in members(kind):
            return None
        if any(_base(member) in (Mapping, tuple) for member in members(kind)):
            value = read(value, kind)
    for member in members(kind):
        fitting, held = _fitted(value, member)
        if fitting:
            wrong = _out_of_range(held, member)
            if wrong is None:
                return held
    if wrong is not None:
        raise ValueError(f"{flag(name)} {wrong}.")
    choices = [str(c) for m in members(kind) if get_origin(m) is Literal for c in get_args(m)]
    words = [WORDS[base] for m in members(kind) if (base := _base(m)) in WORDS]
    if choices and isinstance(value, str):
        what = name.removesuffix(".name").removesuffix(".kind").rpartition(".")[2]
        hint = nearest(value, choices)
        raise ValueError(
            f"There is no {what} {value!r}{hint}: choose {', '.join([*choices, *words])}."
        )
    allowed = ["one of " + ", ".join(choices)] * bool(choices) + words
    raise ValueError(f"{flag(name)} must be {' or '.join(allowed)}, got {value!r}.")


def _base(kind: Any) -> Any:
    if get_origin(kind) is Annotated:
        return _base(get_args(kind)[0])
    return get_origin(kind) or kind


def _out_of_range(value: Any, kind: Any) -> str | None:
    """What is wrong with a value, or with one of those it holds."""
    if get_origin(kind) is Annotated:
        inner, *rules = get_args(kind)
        checks = (rule.wrong(value) for rule in rules if isinstance(rule, Within | Filled))
        return next((words for words in checks if words), None) or _out_of_range(value, inner)
    if isinstance(value, tuple):
        item = get_args(kind)[0]
        return next((words for held in value if (words := _out_of_range(held, item))), None)
    return None


def _fitted(value: Any, kind: Any) -> tuple[bool, Any]:
    """Whether a value is of a kind that is no union, and the value as that kind has it."""
    base, arguments = _base(kind), get_args(kind)
    if get_origin(kind) is Annotated:
        return _fitted(value, arguments[0])
    if base in (Union, UnionType):
        return next((found for m in arguments if (found := _fitted(value, m))[0]), (False, value))
    if base is Literal:
        return isinstance(value, str) and value in arguments, value
    if base is tuple:
        return _fitted_items(value, arguments)
    if base is Mapping:
        if not isinstance(value, Mapping) or not value:
            return False, value
        items = {key: _fitted(held, arguments[1]) for key, held in value.items()}
        fits = all(isinstance(key, str) and found[0] for key, found in items.items())
        return fits, {key: found[1] for key, found in items.items()}
    if base is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = number and abs(value) <= sys.float_info.max
        return fits, float(value) if fits else value
    if base is NoneType:
        return value is None, value
    return isinstance(value, base) and not (base is int and isinstance(value, bool)), value


def _fitted_items(value: Any, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    if not isinstance(value, list | tuple):
        return False, value
    kinds = [arguments[0]] * len(value) if ... in arguments else list(arguments)
    if len(kinds) != len(value):
        return False, value
    found = [_fitted(held, one) for held, one in zip(value, kinds, strict=True)]
    return all(one[0] for one in found), tuple(one[1] for one in found)


def read(word: str, kind: Any) -> Any:
    """What a word on the command line stands for, by the kinds of the option.

    >>> read("conv*=0.004,*=0.01", float | Mapping[str, float])
    {'conv*': 0.004, '*': 0.01}
    >>> read("first,group1*", str | tuple[str, ...])
    ('first', 'group1*')
    """
    for member in members(kind):
        found = _read_member(word, member)
        if found is not None:
            return found
    return None if word == "none" and NoneType in members(kind) else word


def _read_member(word: str, kind: Any) -> Any:
    base, arguments = _base(kind), get_args(kind)
    if base is Literal:
        return word if word in arguments else None
    if base is bool:
        return {"true": True, "false": False}.get(word.lower())
    if base in (int, float):
        try:
            return base(word)
        except ValueError:
            return None
    if base is Mapping and "=" in word:
        pairs = [part.rpartition("=") for part in word.split(",")]
        return {name.strip(): read(text, arguments[1]) for name, _, text in pairs}
    if base is tuple and "," in word and "=" not in word:
        return tuple(read(part.strip(), arguments[0]) for part in word.split(","))
    return None


def item_of(kind: Any) -> Any:
    """What an option is a list of, which takes several words; None if it is no list.

    >>> item_of(tuple[str, ...]), item_of(str | tuple[str, ...])
    (<class 'str'>, None)
    """
    kinds = [member for member in members(kind) if member is not NoneType]
    only = get_args(kinds[0])[0] if get_origin(kinds[0]) is Annotated else kinds[0]
    if len(kinds) > 1 or get_origin(only) is not tuple or ... not in get_args(only):
        return None
    return get_args(only)[0]


def words_of(value: Any, kind: Any) -> list[str]:
    """A value as words of a command, from which `read` gives it back.

    >>> words_of((2000, 2000), tuple[int, ...]), words_of((0.1, 0.2), float | tuple[float, float])
    (['2000', '2000'], ['0.1,0.2'])
    """
    if item_of(kind) is not None and isinstance(value, list | tuple):
        return [_word(held) for held in value]
    return [_word(value)]


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_word(held)}" for name, held in value.items())
    if isinstance(value, list | tuple):
        return ",".join(_word(held) for held in value)
    return "none" if value is None else str(value)


def as_plain(value: Any) -> Any:
    """A value as JSON gives it back: tuples as lists.

    >>> as_plain({"hidden": (2, 3)})
    {'hidden': [2, 3]}
    """
    if isinstance(value, Mapping):
        return {str(key): as_plain(held) for key, held in value.items()}
    return [as_plain(held) for held in value] if isinstance(value, list | tuple) else value
