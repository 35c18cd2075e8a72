"""Templates of the states of optimizers and learning-rate schedules."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .templates import ANYTHING, Partly, Rule, values_like

__all__ = ["load_optimizer", "optimizer_like", "schedule_like"]

# Sizes of a toy parameter: they tell which size of the parameter a size of the state comes from.
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)


def load_optimizer(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load a state into an optimizer, which takes over copies: torch's would write into the state."""
    optimizer.load_state_dict(copy.deepcopy(dict(state)))


def optimizer_like(
    make: Callable[[Any], Optimizer],
    parameters: Sequence[Tensor],
    groups: Sequence[Mapping[str, Any]],
    state: Any,
) -> dict[str, Any]:
    """The template of an optimizer's state, found by one step on toy parameters.

    Args:
        make: Builds the optimizer.
        parameters: Only their shapes and dtypes count.
        groups: The parameter groups of an optimizer made in the same way, including what a schedule
            keeps there.
        state: The state to check, which says which parameters have entries.
    """
    toy, toys = _toy(make, parameters)
    held_by_toy = {id(p) for group in toy.param_groups for p in group["params"]}
    if held_by_toy <= {id(p) for p in toys}:  # no parameters that the factory brings along
        for p in toys:
            p.grad = torch.ones_like(p) if p.requires_grad else None
        toy.step()
    shapes = {id(t): tuple(p.shape) for t, p in zip(toys, parameters, strict=True)}
    ordered = [
        shapes.get(id(p), tuple(p.shape)) for group in toy.param_groups for p in group["params"]
    ]
    stepped, held = toy.state_dict(), state["state"]
    if not isinstance(held, Mapping) or not all(
        type(n) is int and 0 <= n < len(ordered) for n in held
    ):
        raise ValueError("optimizer state must be a dict by the indices of parameters")
    entries = {
        n: {
            key: _entry_like(value, ordered[n])
            for key, value in stepped["state"].get(n, {}).items()
        }
        for n in held
    }
    numbered = [group["params"] for group in stepped["param_groups"]]
    return {
        "state": entries,
        "param_groups": [_group_like(group, n) for group, n in zip(groups, numbered, strict=True)],
    }


def _toy(
    make: Callable[[Any], Optimizer], parameters: Sequence[Tensor]
) -> tuple[Optimizer, list[nn.Parameter]]:
    """The optimizer with toy parameters, grouped as the real parameters would be."""
    # Stand-ins have the full shape but one number each: the factory may group by size.
    stand_ins = [
        nn.Parameter(torch.zeros((), dtype=p.dtype).expand(p.shape), p.requires_grad)
        for p in parameters
    ]
    toys = [
        nn.Parameter(torch.ones(PRIMES[: p.dim()], dtype=p.dtype), p.requires_grad)
        for p in parameters
    ]
    planned, toy = make(stand_ins), make(toys)
    if _group_sizes(planned) == _group_sizes(toy):
        return toy, toys
    by_stand_in = {id(one): other for one, other in zip(stand_ins, toys, strict=True)}
    for group in planned.param_groups:
        group["params"] = [by_stand_in.get(id(p), p) for p in group["params"]]
    return planned, toys


def _group_sizes(optimizer: Optimizer) -> list[int]:
    return [len(group["params"]) for group in optimizer.param_groups]


def schedule_like(schedule: Any) -> Any:
    """The template of a schedule's state, from one made with the same arguments; None for none."""
    if schedule is None:
        return None
    like = values_like(schedule.state_dict())
    public = tuple(name for name in like if not name.startswith("_"))
    return Partly({"verbose": ANYTHING} | like, public)


def _group_like(group: Mapping[str, Any], numbers: list[int]) -> Partly:
    """The template of a parameter group: the same settings, except rates that a schedule changes.

    "fused" and "foreach" may differ: they change how a step is computed, not its result.
    """
    real = {
        key: float(value) if type(value) is int else value
        for key, value in group.items()
        if key != "params"
    }
    flags = {key: value for key, value in real.items() if value is None or isinstance(value, bool)}
    ways = {
        key: Rule(partial(_is_same_or_none, flags[key]), "be as it was or None")
        for key in ("fused", "foreach")
        if key in flags
    }
    entries = values_like(real, below_one=True) | flags | ways | {"params": numbers}
    return Partly(entries, ("params", "lr"))


def _is_same_or_none(wanted: Any, value: Any) -> bool:
    return value is None or value is wanted


def _entry_like(value: Any, shape: tuple[int, ...]) -> Any:
    """The template of an entry, with the sizes of the parameter in place of the toy's."""
    if not isinstance(value, Tensor):
        return values_like(value)
    if value.dim() == 0:
        dtype = value.dtype
        return Rule(lambda found: _is_count(found, dtype), "be one number of at least 0")
    by_prime = dict(zip(PRIMES, shape, strict=False))
    sizes = [by_prime.get(size, size) for size in value.shape]
    return torch.empty(sizes, dtype=value.dtype, device="meta")


def _is_count(found: Any, dtype: torch.dtype) -> bool:
    if not isinstance(found, Tensor) or found.dim() != 0 or found.dtype != dtype:
        return False
    return bool(found >= 0) and math.isfinite(found)
