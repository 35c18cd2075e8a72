"""Stages of residual networks: units that several layers write, and that sums carry on to others.

In x <- x + F(x) all layers whose results are summed make the same units. A unit can be left out of
a sub-network only if it is closed in every summand, so the units of a stage have one gate.
"""

from __future__ import annotations

from dataclasses import dataclass

from .flow import (
    acts_on_each_unit,
    flattens,
    has_tensors,
    pools,
    reads_units,
    role,
    sums_layers_only,
)
from .kinds import is_layer, is_norm, narrows, rescales, unit_dim, units_of
from .narrowing import makes_units_once
from .norm import ContextNorm
from .placement import Site
from .wiring import Wiring

__all__ = ["stage_sites"]


@dataclass(frozen=True)
class _Stage:
    """The calls that carry the units of a stage, by index.

    Args:
        writers: The layers whose results are summed.
        inside: The sums, and the norms, activations and pools between writers and readers.
        reads: Each layer that reads the units, with the call whose result it reads.
    """

    writers: tuple[int, ...]
    inside: tuple[int, ...]
    reads: dict[int, int]


def stage_sites(wiring: Wiring) -> dict[str, Site]:
    """The site of every stage that can be narrowed, by each of the layers that write to it.

    The gate acts in front of every layer that reads the stage. A stage that mixes its units, as the
    LayerNorms of transformers do, or that reaches the output, has no such site.

    >>> import torch
    >>> from torch import nn
    >>> from .wiring import trace
    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.first, self.block, self.head = (nn.Linear(3, n) for n in (3, 3, 2))
    ...     def forward(self, x):
    ...         x = self.first(x)
    ...         return self.head(x + self.block(torch.relu(x)))
    >>> {name: site.readers for name, site in stage_sites(trace(Net())).items()}
    {'first': ('block', 'head'), 'block': ('block', 'head')}
    """
    found: dict[str, Site] = {}
    seen: set[int] = set()
    for index in range(len(wiring.calls)):
        if index in seen or role(wiring, index) != "sum" or sums_layers_only(wiring, index):
            continue
        stage = _stage_around(wiring, index)
        if stage is not None:
            seen.update(stage.inside)
            site = _site(wiring, stage)
            found |= {wiring.calls[i].name: site for i in stage.writers} if site else {}
    return found


def _stage_around(wiring: Wiring, index: int) -> _Stage | None:
    """All that is summed with the result of a call; None if something there mixes units."""
    writers, inside, reads, queue = set[int](), set[int](), dict[int, int](), [index]
    while queue:
        current = queue.pop()
        if current in writers or current in inside:
            continue
        if current in wiring.outputs:
            return None
        if is_layer(wiring.calls[current].module):
            writers.add(current)
        elif _keeps_units_apart(wiring, current):
            inside.add(current)
            queue.extend(wiring.calls[current].inputs)
        else:
            return None
        for user in wiring.users(current):
            if is_layer(wiring.calls[user].module):
                reads[user] = current
            else:
                queue.append(user)
    return _Stage(tuple(sorted(writers)), tuple(sorted(inside)), dict(sorted(reads.items())))


def _keeps_units_apart(wiring: Wiring, index: int) -> bool:
    """Whether every unit of the result is computed from the same unit of each input."""
    call = wiring.calls[index]
    if flattens(wiring, index):  # behind it there may be several numbers a unit
        return call.name != "flatten_to_size" and _is_only_read(wiring, index)
    if role(wiring, index) == "sum":
        return len(call.inputs) > 1  # what no call makes may differ from unit to unit
    is_pool = pools(wiring, index, 0)
    return is_pool or role(wiring, index) == "transparent" or acts_on_each_unit(call)


def _is_only_read(wiring: Wiring, index: int) -> bool:
    """Whether a result reaches nothing but layers, through dropout at most."""
    return all(
        is_layer(wiring.calls[user].module)
        or (role(wiring, user) == "transparent" and _is_only_read(wiring, user))
        for user in wiring.users(index)
    )


def _site(wiring: Wiring, stage: _Stage) -> Site | None:
    """The site of a stage; None if some of its units cannot be left out."""
    calls = wiring.calls
    start = next((i for i in stage.writers if _reaches_all(wiring, stage, i)), None)
    maker = None if start is None else calls[start].module
    if start is None or maker is None or len(stage.writers) < 2:
        return None
    units, dim = units_of(maker) or 0, unit_dim(maker)
    if not (
        all(makes_units_once(wiring, i, units) for i in stage.writers)
        and all(unit_dim(calls[i].module or maker) == dim for i in stage.writers)
        and all(_fits(wiring, i, units, dim) for i in stage.inside)
        and all(_reads_once(wiring, i, units, dim) for i in stage.reads)
    ):
        return None
    readers = tuple(calls[i].name for i in stage.reads)
    owners = [*stage.writers, *(i for i in stage.inside if has_tensors(calls[i].module))]
    return Site(
        calls[start].name,
        readers[0],
        tuple(calls[i].name for i in owners),
        units,
        dim,
        in_front=True,
        at_readers=True,
        readers=readers,
        narrows=True,
        narrows_before_norm=True,
        centred=all(_is_centred(wiring, i) for i in stage.writers),
    )


def _reaches_all(wiring: Wiring, stage: _Stage, writer: int) -> bool:
    """Whether the result of a layer is part of whatever the stage's readers read."""
    reached, queue = set[int](), [writer]
    while queue:
        current = queue.pop()
        if current not in reached:
            reached.add(current)
            queue.extend(user for user in wiring.users(current) if user in stage.inside)
    return reached.issuperset(stage.reads.values())


def _fits(wiring: Wiring, index: int, units: int, dim: int) -> bool:
    """Whether a call inside a stage works on its units, and on nothing else if it has tensors."""
    module = wiring.calls[index].module
    if pools(wiring, index, 0) and dim == -1:
        return False
    if is_norm(module) and module is not None and not rescales(module, units, dim):
        return False
    return not has_tensors(module) or wiring.times(wiring.calls[index].name) == 1


def _reads_once(wiring: Wiring, index: int, units: int, dim: int) -> bool:
    call = wiring.calls[index]
    once = narrows(call.module) and wiring.times(call.name) == 1
    return once and reads_units(call.module, units, dim)


def _is_centred(wiring: Wiring, index: int) -> bool:
    """Whether ContextNorms subtract the mean wherever a result goes, through sums alone."""
    return all(
        isinstance(wiring.calls[user].module, ContextNorm)
        or (role(wiring, user) == "sum" and _is_centred(wiring, user))
        for user in wiring.users(index)
    )
