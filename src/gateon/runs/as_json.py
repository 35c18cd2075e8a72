"""JSON that people can read, and whether what was read is of the annotated kinds."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

__all__ = ["are_times", "as_lines", "fits"]

WHOLE = 1 << 64  # of any whole number: far larger ones are no floats any more
# what JSON has for each
PLAIN: dict[Any, set[Any]] = {float: {float, int}, int: {int}, str: {str}, NoneType: {NoneType}}


def as_lines(content: dict[str, Any]) -> str:
    """JSON with an entry a line: of lists each item, of tables each row.

    >>> print(as_lines({"tasks": ["a", "b"]}))
    {
     "tasks": [
      "a",
      "b"
     ]
    }
    <BLANKLINE>
    """
    entries = [f" {json.dumps(name)}: {_shown(value)}" for name, value in content.items()]
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _shown(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n  " + ",\n  ".join(json.dumps(item) for item in value) + "\n ]"
    if isinstance(value, dict) and value:
        pairs = [f"{json.dumps(key)}: {json.dumps(item)}" for key, item in value.items()]
        return "{\n  " + ",\n  ".join(pairs) + "\n }"
    return json.dumps(value)


def are_times(seconds: list[dict[str, float]]) -> bool:
    """Whether these are the seconds of tasks.

    >>> are_times([{"train": 1.5, "evaluate": 0.1}]), are_times([{"train": 1.5}])
    (True, False)
    """
    return all(
        one.keys() == {"train", "evaluate"} and all(0 <= value < math.inf for value in one.values())
        for one in seconds
    )


def fits(value: Any, kind: Any) -> bool:
    """Whether a value read from JSON is what an annotation says.

    >>> fits([{"train": 1}], list[dict[str, float]]), fits([None], list[float])
    (True, False)
    """
    if kind is Any:
        return True
    if get_origin(kind) is list:
        return isinstance(value, list) and _all_fit(value, get_args(kind)[0])
    if get_origin(kind) is dict:
        return isinstance(value, dict) and _all_fit(value.values(), get_args(kind)[1])
    if get_origin(kind) is UnionType:
        return any(fits(value, part) for part in get_args(kind))
    return type(value) in PLAIN[kind] and (type(value) is not int or abs(value) <= WHOLE)


def _all_fit(values: Collection[Any], kind: Any) -> bool:
    """At once where only types count: a table of a thousand tasks has half a million figures."""
    kinds = get_args(kind) if get_origin(kind) is UnionType else (kind,)
    if all(one in PLAIN for one in kinds):
        found = set(map(type, values))
        allowed = set().union(*(PLAIN[one] for one in kinds))
        return found <= allowed and (
            int not in found or all(abs(value) <= WHOLE for value in values if type(value) is int)
        )
    return all(fits(item, kind) for item in values)
