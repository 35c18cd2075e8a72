"""Templates of states: what a state may contain, checked before anything is loaded.

A template is nested like the state. Its leaves say what may be there:

- a tensor (on the device "meta", without data): one of the same shape and dtype;
- `Whole`: an integer within bounds; a string or None: exactly that;
- `Partly`: a dict, some of whose entries may be missing; `Rule`: whatever a function accepts;
- `ANYTHING`: whatever is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "ANYTHING",
    "COUNT",
    "FLAG",
    "GENERATOR",
    "LARGEST",
    "NUMBER",
    "Partly",
    "Rule",
    "Whole",
    "check",
    "check_fits",
    "indices_like",
    "shown",
    "values_like",
]

LARGEST = 1 << 53  # beyond it a float no longer holds every integer


@dataclass(frozen=True)
class Whole:
    """An integer within bounds, both included."""

    low: int = 0
    high: int = LARGEST


@dataclass(frozen=True)
class Partly:
    """A dict with optional entries: torch adds some in new versions and has defaults for them."""

    entries: Mapping[str, Any]
    needed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """Whatever a function accepts; `words` complete the message "... must"."""

    accepts: Callable[[Any], bool]
    words: str


def _is_number(value: Any) -> bool:
    """Whether it is a float, or an integer that a float can hold."""
    return type(value) is float or (type(value) is int and abs(value) <= LARGEST)


def _is_generator(state: Any) -> bool:
    try:
        torch.Generator().set_state(state)
    except (TypeError, RuntimeError):
        return False
    return True


COUNT = Whole()
NUMBER = Rule(_is_number, "be a number")  # including NaN and infinity
FLAG = Rule(lambda value: isinstance(value, bool), "be true or false")
ANYTHING = Rule(lambda value: True, "be there")
GENERATOR = Rule(_is_generator, "be the state of a random generator")


def check(state: Any, like: Any, name: str = "state") -> None:
    """Raise ValueError, with one sentence, where a state does not match its template.

    Args:
        state: Nested dicts, lists, tensors and plain values.
        like: The template.
        name: What the message calls the state.

    >>> check({"step": 3, "weight": torch.ones(2)}, {"step": COUNT, "weight": torch.empty(2)})
    >>> check({"step": 3, "weight": torch.ones(2)}, {"step": COUNT, "weight": torch.empty(4)})
    Traceback (most recent call last):
    ...
    ValueError: weight must be float32 of shape (4,), got float32 of shape (2,)
    """
    if isinstance(like, Tensor):
        alike = isinstance(state, Tensor) and (state.shape, state.dtype) == (like.shape, like.dtype)
        _require(alike, name, shown(like), state)
    elif isinstance(like, Whole):
        fits = type(state) is int and like.low <= state <= like.high
        _require(fits, name, f"an integer from {like.low} to {like.high}", state)
    elif isinstance(like, Rule):
        if not like.accepts(state):
            raise ValueError(f"{name} must {like.words}")
    elif isinstance(like, Partly):
        _require(isinstance(state, Mapping), name, "a dict", state)
        wanted = {k: v for k, v in like.entries.items() if k in state or k in like.needed}
        check(state, wanted, name)
    elif isinstance(like, Mapping):
        _require(isinstance(state, Mapping), name, "a dict", state)
        # Compare types too, because True equals 1 as a key.
        if {(type(key), key) for key in state} != {(type(key), key) for key in like}:
            raise ValueError(
                f"{name} must have the {len(like)} entries expected here, got {len(state)} others"
            )
        for key, part in like.items():
            check(state[key], part, str(key) if name == "state" else f"{name} {key}")
    elif isinstance(like, list | tuple):
        fits = isinstance(state, list | tuple) and len(state) == len(like)
        _require(fits, name, f"a list of {len(like)}", state)
        for n, (value, part) in enumerate(zip(state, like, strict=True)):
            check(value, part, f"{name} {n}")
    else:
        _require(type(state) is type(like) and state == like, name, repr(like), state)


def check_fits(state: Any, template: Callable[[Any], Any]) -> None:
    """Raise ValueError where a state does not match the template made for it.

    Args:
        state: Anything at all, as read from a file.
        template: Makes the template of a state; it may fail on a state with other parts.
    """
    try:
        like = template(state)
    except (KeyError, TypeError, AttributeError, IndexError, RuntimeError, OverflowError) as reason:
        raise ValueError("its parts are not those expected here") from reason
    try:
        check(state, like)
    except OverflowError as reason:
        raise ValueError("it holds a number that is too large") from reason


def _require(holds: bool, name: str, wanted: str, found: Any) -> None:
    if not holds:
        raise ValueError(f"{name} must be {wanted}, got {shown(found)}")


def shown(value: Any) -> str:
    """A value as a message names it.

    >>> shown(torch.ones(2, 3)), shown(7), shown([7])
    ('float32 of shape (2, 3)', '7', 'a list')
    """
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    if type(value) is int and abs(value) > LARGEST:  # Python refuses to print the largest ones
        return "a number that is too large"
    if isinstance(value, int | float | str | None):
        return f"{value!r:.40}"
    return f"a {type(value).__name__}"


def values_like(values: Any, *, below_one: bool = False) -> Any:
    """The template of plain values of the same kinds.

    Numbers that are not negative stay so, integers stay integers, strings stay the same.

    Args:
        values: Those of an object made with the same arguments.
        below_one: Whether numbers below 1, except learning rates, must stay below 1.

    >>> check({"lr": 0.5, "steps": 7}, values_like({"lr": 0.1, "steps": 3}))
    """
    if isinstance(values, Mapping):
        bounded = {key: below_one and not (isinstance(key, str) and "lr" in key) for key in values}
        return {key: values_like(value, below_one=bounded[key]) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [values_like(value, below_one=below_one) for value in values]
    if isinstance(values, Tensor):
        return values.to("meta")
    if isinstance(values, bool):
        return FLAG
    if isinstance(values, int) and not below_one:
        return Whole(min(values, 1))
    if isinstance(values, int | float):
        return Rule(lambda value: _is_like(value, values, below_one), f"be a number like {values}")
    if values is None:
        return Rule(lambda value: value is None or _is_number(value), "be a number or None")
    return values


def _is_like(value: Any, number: float, below_one: bool) -> bool:
    if not _is_number(value):
        return False
    if not math.isfinite(number):
        return True
    if not math.isfinite(value) or (value < 0 and number >= 0):
        return False
    return value < 1 or not below_one or number >= 1


def indices_like(below: int) -> Rule:
    """The template of unit indices below a bound: a tensor in ascending order, without repeats.

    >>> check(torch.tensor([0, 2, 3]), indices_like(4))
    """

    def accepts(value: Any) -> bool:
        if not isinstance(value, Tensor) or value.dtype != torch.long or value.dim() != 1:
            return False
        ascending = len(value) > 0 and bool((value.diff() > 0).all())
        return ascending and bool(value[0] >= 0 and value[-1] < below)

    return Rule(accepts, f"list units from 0 to {below - 1} in ascending order")
