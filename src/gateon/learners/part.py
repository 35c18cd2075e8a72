"""The sub-network a learner works on: taken out of the whole at a switch, with all that belongs to it, and written back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
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

from ..availability.obstruct import Obstruction
from ..gating.gates import Gates, gates_of
from ..methods.base import Adopt, Method
from ..methods.both import Both
from ..methods.gateon import GateON
from ..methods.si import SI
from ..methods.xdg import XdG
from ..subnetwork.compact import (
    Cut,
    cut_for,
    put_availability,
    put_back,
    spare_strided,
    take_availability,
    take_out,
)

__all__ = ["Part", "part_shapes"]

# Without weight decay these leave alone what has no gradient: a unit that is left out and one that
# is closed are then the same.
EXACT = (SGD, Adam, AdamW, Adamax, NAdam, RAdam, RMSprop, Adagrad, Adadelta)


@dataclass
class Part:
    """A sub-network, the cut that made it, its optimizer, and what the method keeps of its parameters."""

    gates: Gates
    cut: Cut
    network: nn.Module
    kept: Kept | None = None
    optimizer: Optimizer = None  # type: ignore[assignment]
    step: int = 0  # of the learner, when it was last written back

    @classmethod
    def of(
        cls,
        model: nn.Module,
        method: Method,
        context: int,
        new_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
        active: Mapping[str, Tensor] | None = None,
    ) -> Part | None:
        """The part to train in a context; None where that would not be exact, or no smaller."""
        gates = gates_of(model)
        if gates is None or not _is_exact(method):
            return None
        cut = cut_for(gates, context, active)
        if not cut.active:
            return None
        network = take_out(gates, cut)
        spare_strided(network)
        optimizer = new_optimizer(network.parameters())
        if not cls.is_exact(method, optimizer):
            return None
        part = cls(gates, cut, network, _kept_by(method, model, cut, network), optimizer)
        if part.kept is not None:
            part.kept.follow(optimizer)
        return part

    @staticmethod
    def is_exact(method: Method, optimizer: Optimizer) -> bool:
        """Whether training the part is training the whole, under this method and by such an optimizer."""
        decays = any(group.get("weight_decay") for group in optimizer.param_groups)
        return _is_exact(method) and not decays and type(optimizer) in EXACT

    @classmethod
    def shown(cls, model: nn.Module, method: Method, context: int) -> Part | None:
        """The part to evaluate in a context; None where there is none."""
        gates = gates_of(model)
        if gates is None or not _is_exact(method):
            return None
        cut = cut_for(gates, context)
        return cls(gates, cut, take_out(gates, cut)) if cut.active else None

    def write_back(self) -> None:
        """Put what was learned so far into the whole; the part goes on."""
        put_back(self.gates, self.cut, self.network)
        if self.kept is not None:
            self.kept.put_back()

    def renew(self) -> None:
        """Take over what the method has changed in the whole, at the end of a task."""
        if self.kept is not None:
            self.kept.take()


def part_shapes(
    model: nn.Module, twin: nn.Module, context: int, active: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The parameters of the part of a model with these active units, without numbers.

    Args:
        model: with gates.
        twin: the same without numbers, with as many contexts as are asked for.
        context: of the part.
        active: its units, by site.
    """
    gates = copy(gates_of(model))
    assert gates is not None
    gates.model = twin
    cut = cut_for(gates, context, active)
    return {
        name: nn.Parameter(cut.take(name, p), p.requires_grad)
        for name, p in twin.named_parameters()
    }


class Kept(Protocol):
    """What a method keeps of every parameter: in the whole, and that of the part."""

    def follow(self, optimizer: Optimizer) -> None:
        """Let the method see the steps of the part's optimizer."""

    def take(self) -> None:
        """Copy from the whole into the part."""

    def put_back(self) -> None:
        """Copy from the part into the whole."""


class Availabilities:
    """Those of GateON. The end of a task changes nothing about them."""

    def __init__(self, whole: Obstruction, cut: Cut, network: nn.Module) -> None:
        self.whole, self.cut, self.part = whole, cut, take_availability(whole, cut, network)

    def follow(self, optimizer: Optimizer) -> None:
        """Obstruct it."""
        self.part.follow(optimizer)

    def take(self) -> None:
        """Nothing to take over."""

    def put_back(self) -> None:
        """Those left out grow meanwhile."""
        put_availability(self.whole, self.cut, self.part)


class Paths:
    """Importances, paths and anchors of SI. A parameter that is left out has no gradient, stays at its anchor and is not pulled."""

    def __init__(self, whole: SI, model: nn.Module, cut: Cut, network: nn.Module) -> None:
        self.whole, self.cut, self.part = whole, cut, replace(whole)
        whole.begin(model)
        self.adopt: Adopt = self.part.prepare(network)
        self.take()

    def follow(self, optimizer: Optimizer) -> None:
        """Integrate its steps."""
        self.adopt(optimizer)

    def take(self) -> None:
        """All three, as they are at a switch or after the end of a task."""
        for whole, part in self._pairs():
            part |= {name: self.cut.take(name, tensor) for name, tensor in whole.items()}
        self.part.tasks = self.whole.tasks

    @torch.no_grad()
    def put_back(self) -> None:
        """The paths so far; the other two change at the end of a task only."""
        for name, path in self.part.path.items():
            self.cut.put(name, self.whole.path[name], path)

    def _pairs(self) -> Iterable[tuple[dict[str, Tensor], dict[str, Tensor]]]:
        return (
            (getattr(self.whole, name), getattr(self.part, name))
            for name in ("importance", "path", "anchor")
        )


def _is_exact(method: Method) -> bool:
    """Whether a unit with gain 0 changes nothing under the method, and nothing changes it."""
    if isinstance(method, Both):
        return isinstance(method.first, XdG) and isinstance(method.second, SI)
    return isinstance(method, XdG) or (isinstance(method, GateON) and method.handle is not None)


def _kept_by(method: Method, model: nn.Module, cut: Cut, network: nn.Module) -> Kept | None:
    if isinstance(method, GateON) and method.handle is not None:
        return Availabilities(method.handle, cut, network)
    if isinstance(method, Both) and isinstance(method.second, SI):
        return Paths(method.second, model, cut, network)
    return None
