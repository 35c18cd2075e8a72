"""Whether a directory holds the requested run, or one with another number of tasks.

A run may be given more tasks: what it learned first does not depend on how many follow, unless
`needs_number` says so. GateON makes room for the new number from then on. Everything else must be
equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..methods.registry import facts_of
from ..methods.section import is_gateon
from .record import Record
from .specification import Specification

__all__ = ["check_same", "needs_number"]

LENGTH = ("stream.tasks", "stream.repeats")  # options that may change
ELSEWHERE = "choose another output directory; nothing was changed"


def check_same(
    specification: Mapping[str, Any],
    data: Mapping[str, Any],
    numerics: int,
    asked: Record,
    path: Path,
) -> bool:
    """Refuse a directory that holds a run other than the requested one.

    The data must be the same too: files may change, and stand-ins may be replaced by the real data.

    Args:
        specification, data, numerics: of the run that was found.
        asked: a record of the requested run.
        path: where it was found.

    Returns:
        Whether it is the same run with as many tasks; False if only their number differs.
    """
    wanted, held = _comparable(asked.specification), _comparable(specification)
    differ = [key for key in {**wanted, **held} if held.get(key) != wanted.get(key)]
    length = bool(differ) and _differ_in_length(held, wanted, differ)
    if differ and not length:
        key = next((key for key in differ if key not in LENGTH), differ[0])
        other = f"another run, with {key} {held.get(key)!r} and not {wanted.get(key)!r}"
    elif numerics != asked.numerics:
        other = f"a run of numerics version {numerics}, and this gateon has {asked.numerics}"
    elif _plain(data.get("sha256")) != _plain(asked.data.get("sha256")):
        other = f"a run on other data, {data.get('name')} from {data.get('from')}"
    elif length and (why := needs_number(asked.specification)):
        other = f"a run with another number of tasks, which cannot change, since {why}"
    else:
        return not length
    raise ValueError(f"{path.parent} holds {other}: {ELSEWHERE}.")


def needs_number(specification: Mapping[str, Any]) -> str | None:
    """Why the first tasks of a run depend on how many follow, if they do.

    >>> asked = {"stream.name": "split-mnist", "method.name": "dendrites"}
    >>> needs_number(Specification.from_options(asked).to_dict())
    'dendrites takes its segments from the number of tasks'
    """
    try:
        asked = Specification.from_options(specification)
    except ValueError:  # started from Python, by a learner that is made already
        return None
    if asked.network.heads == "per-task":
        return "the network has a head for every task from the start"
    for field, fact in facts_of(asked.method.name).items():
        given = asked.method.options.get(field) is not None
        if fact == "tasks" and not given and not is_gateon(asked.method.name):
            return f"{asked.method.name} takes its {field} from the number of tasks"
    return None


def _differ_in_length(
    held: Mapping[str, Any], wanted: Mapping[str, Any], differ: list[str]
) -> bool:
    """Whether two runs differ only in the number of tasks."""
    if differ == ["stream"]:  # started from Python
        return _first_tasks_equal(held.get("stream"), wanted.get("stream"))
    if differ == ["stream.tasks"]:
        return bool(held.get("stream.repeats", 1) == 1)
    return differ == ["stream.repeats"]


def _first_tasks_equal(one: Any, other: Any) -> bool:
    """Whether one of two streams, given by settings, begins with all tasks of the other.

    >>> few, many = ({"stream": "permuted-mnist", "tasks": n, "seed": 0} for n in (10, 12))
    >>> _first_tasks_equal(few, many), _first_tasks_equal(few, {**many, "seed": 1})
    (True, False)
    """
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    kind = one.get("stream")
    differ = {key for key in {**one, **other} if one.get(key) != other.get(key)}
    if kind == "recurring":
        orders = zip(one.get("order", []), other.get("order", []), strict=False)
        return differ == {"order"} and all(a == b for a, b in orders)
    if kind == "augmented":
        return differ == {"of"} and _first_tasks_equal(one["of"], other["of"])
    # of blurred streams, whose last task is mixed with the next one, "of" differs
    return differ == {"tasks"}


def _comparable(specification: Mapping[str, Any]) -> dict[str, Any]:
    """Every option by its dotted name: older specifications lack options, or name them differently.

    A run that was started from Python has settings of its own, which stay as they are.
    """
    try:
        return Specification.from_options(specification).flat()
    except ValueError:
        return {str(key): _plain(value) for key, value in specification.items()}


def _plain(value: Any) -> Any:
    """As JSON would give it back."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and math.isnan(value):
        return None
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
