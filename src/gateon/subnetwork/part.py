"""A sub-network at work: taken out of the whole, trained or evaluated, written back.

The network of a context *is* its active sub-network. Leaving out what is closed is the same
mathematics at the square of the density of the cost. Whatever else belongs to the parameters, such
as availabilities, is cut and put back by a `Keeper`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
)

from ..anatomy.contextual import Contextual
from ..anatomy.kinds import inputs_of, outputs_per_unit, resize
from ..anatomy.norm import ContextNorm
from ..anatomy.rows import ByRow, all_rows, fetch_rows
from ..anatomy.sites import Site
from ..availability.observers import Through
from ..gating.gate import Gate
from ..gating.gates import Gates, gates_of
from .cut import Cut

__all__ = ["Cut", "Keeper", "Part", "leaves_idle_alone", "take_part"]

# Without weight decay these do not move what has no gradient: leaving a closed unit out and keeping
# it are then the same.
EXACT = (SGD, Adam, AdamW, Adamax, NAdam, RAdam, RMSprop, Adagrad, Adadelta)


class Keeper(Protocol):
    """Cuts per-parameter state for a sub-network, and puts it back."""

    def take(self, cut: Cut, network: nn.Module) -> None:
        """Copy what is inside the cut, for the sub-network that was taken out."""

    def follow(self, optimizer: Optimizer) -> None:
        """Follow the steps of the sub-network's optimizer."""

    def renew(self) -> None:
        """Copy again what the end of a task has changed in the whole."""

    def put_back(self) -> None:
        """Write what has changed back into the whole; the sub-network goes on."""


@dataclass
class Part:
    """A sub-network, the cut that made it, and who keeps what belongs to its parameters."""

    gates: Gates
    cut: Cut
    network: nn.Module
    keeper: Keeper | None = None

    def write_back(self) -> None:
        """Put everything learned so far into the whole; the sub-network goes on."""
        _put_back(self.gates, self.cut, self.network)
        if self.keeper is not None:
            self.keeper.put_back()


def take_part(
    gates: Gates, cut: Cut, keeper: Keeper | None = None, *, trained: bool = True
) -> Part:
    """Take a sub-network out of a model.

    Args:
        gates: of the whole model.
        cut: what is inside.
        keeper: takes what belongs to the parameters.
        trained: whether it will be trained, and not only evaluated.
    """
    network = _taken_out(gates, cut)
    if trained:
        _spare_strided(network)
    if keeper is not None:
        keeper.take(cut, network)
    return Part(gates, cut, network, keeper)


def leaves_idle_alone(optimizer: Optimizer) -> bool:
    """Whether an optimizer never moves what has no gradient, so that a part is exact.

    >>> weight = nn.Parameter(torch.ones(1))
    >>> leaves_idle_alone(Adam([weight])), leaves_idle_alone(Adam([weight], weight_decay=0.1))
    (True, False)
    """
    decays = any(group.get("weight_decay") for group in optimizer.param_groups)
    return not decays and type(optimizer) in EXACT


def _taken_out(gates: Gates, cut: Cut) -> nn.Module:
    """A copy of the model that holds what is inside the cut, for good in the cut's context."""
    model = gates.model
    # deepcopy takes these instead of copying, so that no weight is ever copied whole.
    memo: dict[int, object] = {}
    with torch.no_grad():
        whole = all_rows(model)
        for name, parameter in model.named_parameters():
            memo[id(parameter)] = nn.Parameter(
                cut.take(name, whole[name]).to(parameter.device),
                requires_grad=parameter.requires_grad,
            )
        for name, buffer in model.named_buffers():
            memo[id(buffer)] = cut.take(name, whole[name]).to(buffer.device)
        # Weights computed by hooks are not leaves, and cannot be copied otherwise.
        for module in model.modules():
            if isinstance(module, ByRow):  # the part has the only row it needs
                memo[id(module.kept)] = {}
            memo |= {
                id(t): t.detach().clone()
                for t in module.__dict__.values()
                if isinstance(t, Tensor) and not t.is_leaf
            }
    small: nn.Module = copy.deepcopy(model, memo)
    inner = gates_of(small)
    assert inner is not None
    inner.orphaned, inner.is_part = False, True
    inner.sites = {name: _narrowed(site, cut) for name, site in inner.sites.items()}
    for module in small.modules():
        _drop_observers(module)
        if isinstance(module, Gate):
            module.site = _narrowed(module.site, cut)
            module.stop_observing()
        if isinstance(module, Gate | ContextNorm):
            module.show(0)  # the only row they have left
        elif isinstance(module, Contextual):
            module.show(cut.context)
    inner.context = 0
    inner.resume(cut.context)
    for site in gates.sites.values():
        indices = cut.active.get(site.name)
        if indices is not None:
            for name in site.owns:
                maker = small.get_submodule(name)
                blocks = outputs_per_unit(maker, site.units) if site.multiplied else 1
                resize(maker, units=len(indices) * blocks)
            for name in site.readers:
                reader = small.get_submodule(name)
                positions = (inputs_of(reader) or site.units) // site.units
                resize(reader, inputs=positions * len(indices))
    return small


@torch.no_grad()
def _put_back(gates: Gates, cut: Cut, small: nn.Module) -> None:
    """Write every parameter and statistic of a sub-network back into the whole."""
    whole = all_rows(gates.model)
    for name, part in [*small.named_parameters(), *small.named_buffers()]:
        cut.put(name, whole[name], part.detach())
    fetch_rows(gates.model)


def _spare_strided(small: nn.Module) -> None:
    """Keep narrow 1 x 1 convolutions with a stride off the channels_last layout.

    With fewer than eight channels the backward pass of torch 2.13 writes beyond its memory there.
    """
    for module in small.modules():
        if (
            isinstance(module, nn.Conv2d)
            and module.kernel_size == (1, 1)
            and module.stride != (1, 1)
            and module.in_channels < 8
        ):
            weight = module.weight.data
            # contiguous() would leave its strides as they are.
            module.weight.data = weight.flatten().clone().view(weight.shape)
            module.register_forward_pre_hook(_in_plain_layout)


def _in_plain_layout(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.contiguous() for x in args)


def _drop_observers(module: nn.Module) -> None:
    """Take away the hooks by which the whole model is observed."""
    for hooks in (module._forward_hooks, module._forward_pre_hooks):
        for key, hook in list(hooks.items()):
            method = hook.func if isinstance(hook, partial) else None
            if isinstance(getattr(method, "__self__", None), Through):
                del hooks[key]


def _narrowed(site: Site, cut: Cut) -> Site:
    indices = cut.active.get(site.name)
    return site if indices is None else replace(site, units=len(indices))
