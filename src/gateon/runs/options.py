"""Options: a flat dataclass as JSON-able values and as a TOML file, every value checked against its annotation."""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import asdict
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..storage.checkpoint import whole_file
from ..storage.files import content_of

__all__ = ["as_annotated", "as_values", "check_types", "load", "nearest", "save"]

LARGEST = 1 << 20  # bytes of a file of options
KINDS = {
    int: "a whole number",
    float: "a finite number",
    str: "a string",
    bool: "true or false",
    tuple: "a list of numbers",
}


def check_types(options: Any) -> None:
    """Files and callers may give anything: every value must be of the annotated type, or the error says what it may be.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Asked:
    ...     steps: int = 3
    >>> check_types(Asked(steps=2.5))
    Traceback (most recent call last):
    ...
    ValueError: steps is a whole number, not 2.5.
    """
    kind: type = type(options)
    for name, hint in _hints(kind).items():
        _check_type(name, getattr(options, name), hint)


def as_values(options: Any) -> dict[str, Any]:
    """As JSON has them: tuples as lists."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(options).items()
    }


def as_annotated(values: dict[str, Any], kind: type) -> dict[str, Any]:
    """Values from JSON or TOML as a dataclass wants them; an unknown name is an error that shows the nearest known one."""
    hints = _hints(kind)
    for name in values:
        if name not in hints:
            raise ValueError(
                f"There is no option {name!r}{nearest(name, list(hints))}: see gateon run --help."
            )
    return {name: _as_annotated(value, hints[name]) for name, value in values.items()}


def save(values: dict[str, Any], path: Path) -> None:
    """Write them as TOML; what is None is left out."""
    # TOML writes numbers, strings and lists as JSON does, but for one character.
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
        for name, value in values.items()
        if value is not None
    ]
    with whole_file(path) as aside:
        aside.write_text("".join(lines).replace("\x7f", "\\u007f"), encoding="utf-8", newline="\n")


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote."""
    try:
        return tomllib.loads(content_of(path, LARGEST).decode())
    except FileNotFoundError:
        raise ValueError(f"There is no file {path}.") from None
    except (ValueError, RecursionError) as reason:  # of TOML, of UTF-8, or of what is no plain file
        raise ValueError(f"{path} is not TOML: {reason}.") from None


def nearest(name: str, known: list[str]) -> str:
    """What may have been meant.

    >>> nearest("sead", ["seed", "steps"])
    ", perhaps 'seed'"
    """
    close = get_close_matches(name, known, 1)
    return f", perhaps {close[0]!r}" if close else ""


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The annotations of a dataclass, resolved once: that costs a millisecond, and tables ask for thousands of specifications."""
    return get_type_hints(kind)


def _check_type(name: str, value: Any, hint: Any) -> None:
    parts = _parts(hint)
    if any(_fits(value, part) for part in parts):
        return
    choices = [choice for part in parts if get_origin(part) is Literal for choice in get_args(part)]
    kinds = [
        KINDS[get_origin(part) or part] for part in parts if (get_origin(part) or part) in KINDS
    ]
    if choices and isinstance(value, str):
        raise ValueError(
            f"There is no {name} {value!r}{nearest(value, choices)}: choose {', '.join([*choices, *kinds])}."
        )
    raise ValueError(
        f"{name} is {' or '.join(['one of ' + ', '.join(choices)] * bool(choices) + kinds)}, not {value!r}."
    )


def _parts(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type it is."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(item, get_args(kind)[0]) for item in value)
    if kind is float:
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and abs(value) <= sys.float_info.max
        )
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _as_annotated(value: Any, hint: Any) -> Any:
    """A list as the tuple, a whole number as the float it stands for."""
    parts = _parts(hint)
    if type(value) is int and float in parts and abs(value) <= sys.float_info.max:
        return float(value)
    return (
        tuple(value)
        if isinstance(value, list) and any(get_origin(part) is tuple for part in parts)
        else value
    )
