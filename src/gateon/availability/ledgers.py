"""Ledgers of availability: one kind for the units of a site, one for the parameters of a layer.

Both measure relevance, normalise it to mean one and move their availabilities by it; both tell by
how much to scale the update of a parameter. `running` is A as it is integrated; `applied` is the A
that scales updates: that of the last step, or of the last switch. Gradients are read before the
optimizer moves anything, since some optimizers use them as scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from ..anatomy.kinds import spread, spread_columns
from ..anatomy.shards import local, over_pieces, piece
from ..anatomy.sites import Site
from ..gating.units import at_least_float32
from . import relevance
from .firing_rate import FiringRate
from .observers import Observer, dense_gradient
from .room import goal
from .rule import Rule

__all__ = ["ParameterLedger", "UnitLedger", "blocks"]

Measure = Callable[[Tensor, Tensor], Tensor]  # of dL/dx and x
NEGLIGIBLE = 1e-30  # a sum of relevances too small to be normalised in float32
BLOCK = 1 << 18  # elements, few enough for several operations in a row to stay in the cache


class UnitLedger:
    """The units of one site (n-GateON): all parameters of a unit share its availability.

    Args:
        site: The site.
        rule: What moves A.
        at_once: Whether A takes effect after every step (apply="step") or only at a switch.
        like: A tensor on the device and of the dtype to use, or float32 if that is wider.
        firing_rate: What makes relevance of the activity that is observed; None if relevance is.
    """

    def __init__(
        self,
        site: Site,
        rule: Rule,
        *,
        at_once: bool,
        like: Tensor,
        firing_rate: FiringRate | None = None,
    ) -> None:
        self.site, self.rule, self.at_once, self.firing_rate = site, rule, at_once, firing_rate
        self.running = torch.ones(
            site.units, device=like.device, dtype=at_least_float32(like.dtype)
        )
        self.applied = self.running.clone()
        # Of each unit, and those after the step being made.
        self.rates = None if firing_rate is None else torch.zeros_like(self.running)
        self._new_rates: Tensor | None = None
        self.plastic = True
        # Of the full layer, if this ledger is part of a sub-network.
        self.whole = site.units
        self.room = self.inside = float(site.units)  # sums of the A of the last switch
        self.target: float | None = None  # of the sum of A, where the rule looks after the room
        self.advances = [0]  # how often A has moved since the last switch
        self.observer: Observer | None = None
        # How one value per unit is shaped to multiply each parameter.
        self.owned: dict[nn.Parameter, Callable[[Tensor], Tensor | None]] = {}
        self.makers: dict[
            nn.Parameter, tuple[nn.Module, str]
        ] = {}  # those that make the units, and where they are
        self._views: dict[nn.Parameter, Tensor] = {}
        self._mu: Tensor | None = None
        self._moved_by: tuple[Tensor, float] | None = (
            None  # mu of the last step, and what scales it
        )

    def add(
        self, parameter: nn.Parameter, module: nn.Module, name: str, *, columns: bool = False
    ) -> bool:
        """Track a parameter; return False if it belongs to no single unit.

        Args:
            parameter: of a layer.
            module: the layer.
            name: of the parameter in it.
            columns: whether the units are those that the layer reads, not those that it makes.
        """
        makes = partial(spread, multiplied=self.site.multiplied)
        shaped = partial(spread_columns if columns else makes, module, name)
        if shaped(self.applied) is None:
            return False
        self.owned[parameter] = shaped
        if not columns:
            self.makers[parameter] = module, name
        return True

    def scale_of(self, parameter: nn.Parameter) -> Tensor:
        """What scales the parameter's update, shaped to multiply it."""
        if parameter not in self._views:
            shaped = self.owned[parameter](self.applied)
            assert shaped is not None
            if shaped.data_ptr() != self.applied.data_ptr():  # a copy, which would go stale
                return piece(shaped, parameter)
            self._views[parameter] = piece(shaped, parameter)
        return self._views[parameter]

    def is_plastic(self, parameter: nn.Parameter) -> bool:
        """Whether the updates of the parameter are not scaled at all."""
        return self.plastic

    def measure(self) -> Tensor | None:
        """The sum of mu over units in this step; None if nothing was observed."""
        self._moved_by = None
        observed = None if self.observer is None else self.observer.take()
        if observed is not None and self.firing_rate is not None and self.rates is not None:
            self._new_rates = self.firing_rate.follow(self.rates, observed)
            observed = self._new_rates.square()
        self._mu = None if self.rule.is_still else observed
        if self._mu is None:
            return None
        return (self._mu if self.target is None else self._mu * self.running).sum()

    def advance(self, total: float) -> bool:
        """Move A by the relevance of this step; return whether there was any."""
        observed, self._mu = self._mu, None
        if self._new_rates is not None:
            self.rates, self._new_rates = self._new_rates, None
        if observed is not None and total > NEGLIGIBLE:
            self._moved_by = observed, self.whole / total
            if self.target is not None:
                self._moved_by = observed, self.whole / observed.sum().item()
                above = self.running.sum().item() - self.target
                self.rule(self.running, observed, max(above, 0.0) / total)
            else:
                self.rule(self.running, *self._moved_by)
            self.advances[0] += 1
        return observed is not None

    def spend(self, share: float, progress: float) -> None:
        """Aim at the room that is to be left by now."""
        self.target = goal(self.inside, self.room, share, progress)

    def relevance(self) -> Tensor | None:
        """The relevance that moved A in the last step, of mean one; None if nothing did."""
        return None if self._moved_by is None else self._moved_by[0] * self._moved_by[1]

    def stepped(self) -> None:
        """End the step: with apply="step" the running availability takes effect."""
        if self.at_once:
            self.applied.copy_(self.running)
            self.plastic = False

    def snapshot(self) -> None:
        """Apply the running availability of this moment from now on."""
        self.applied.copy_(self.running)
        self.advances = [0]
        self.take_stock()

    def take_stock(self) -> None:
        """Note what the applied availabilities are: whether all are 1, and their sum."""
        self.plastic = bool((self.applied == 1).all())
        self.room = self.inside = self.applied.sum().item()

    def entries(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """The site as (name, running, applied)."""
        yield self.site.name, self.running, self.applied

    def to(self, device: torch.device) -> None:
        """Move to the device of the model."""
        if self.running.device != device:
            self.running, self.applied = self.running.to(device), self.applied.to(device)
            self.rates = None if self.rates is None else self.rates.to(device)
            self._views.clear()


class ParameterLedger:
    """The parameters of one layer (p-GateON), each with its own availability.

    Weights and biases are normalised together.

    Args:
        site: The site of the layer.
        rule: What moves A.
        at_once: Whether A takes effect after every step (apply="step") or only at a switch.
        measure: The relevance of a parameter, from its gradient and value.
    """

    def __init__(
        self,
        site: Site,
        rule: Rule,
        *,
        at_once: bool,
        measure: Measure = relevance.parameter_gradient,
    ) -> None:
        self.site, self.rule, self.at_once, self.mu_of = site, rule, at_once, measure
        self.names: dict[nn.Parameter, str] = {}
        self.running: dict[nn.Parameter, Tensor] = {}
        self.applied: dict[nn.Parameter, Tensor] = {}
        self.plastic: dict[nn.Parameter, bool] = {}
        self.room = self.inside = 0.0  # sums of the A of the last switch
        self.target: float | None = None  # of the sum of A, where the rule looks after the room
        self._mu: dict[nn.Parameter, Tensor] = {}
        self._moved = False  # whether mu has moved A in this step
        # Sizes in the full layer, if this ledger is part of a sub-network.
        self.whole: dict[nn.Parameter, int] = {}
        # How often the A of each parameter has moved since the last switch.
        self.advances: list[int] = []

    def add(self, parameter: nn.Parameter, name: str) -> None:
        """Track a parameter under its name in the model."""
        self.advances.append(0)
        self.names[parameter] = name
        self.whole[parameter] = parameter.numel()
        self.running[parameter] = torch.ones_like(
            parameter, dtype=at_least_float32(parameter.dtype), requires_grad=False
        )
        self.applied[parameter] = self.running[parameter].clone()
        self.plastic[parameter] = True
        self.room += parameter.numel()
        self.inside += parameter.numel()

    def scale_of(self, parameter: nn.Parameter) -> Tensor:
        """What scales the update of the parameter, or of the piece this process holds of it."""
        return local(self.applied[parameter])

    def is_plastic(self, parameter: nn.Parameter) -> bool:
        """Whether the updates of the parameter are not scaled at all."""
        return self.plastic[parameter]

    def measure(self) -> Tensor | None:
        """The sum of mu over the layer, as far as this process holds it; None without gradients."""
        self._mu.clear()
        self._moved = False
        moved = [p for p in self.names if p.grad is not None]
        if not moved or self.rule.is_still:
            return None
        parts = []
        for p in moved:
            for g, theta, A in blocks(local(dense_gradient(p)), local(p), local(self.running[p])):
                mu = self.mu_of(g, theta)
                parts.append((mu if self.target is None else mu * A).sum())
                if p.numel() <= BLOCK:  # kept for `advance`; larger ones are cheaper to recompute
                    self._mu[p] = mu
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum()

    def advance(self, total: float) -> bool:
        """Move A by the relevance of this step; return whether there was any."""
        if self.rule.is_still or not total > NEGLIGIBLE:
            self._mu.clear()
            return not self.rule.is_still
        moved = [p for p in self.names if p.grad is not None]
        self._moved = True
        if self.target is None:
            scale = sum(self.whole[p] for p in moved) / total
        else:
            now = sum(map(sum_over, self.running.values()))
            scale = max(now - self.target, 0.0) / total
        self.advances = [
            count + (p.grad is not None) for p, count in zip(self.names, self.advances, strict=True)
        ]
        for p in moved:
            if p in self._mu:
                self.rule(local(self.running[p]), self._mu[p], scale)
                continue
            for A, theta, gradient in blocks(
                local(self.running[p]), local(p), local(dense_gradient(p))
            ):
                self.rule(A, self.mu_of(gradient, theta), scale)
        self._mu.clear()
        return True

    def spend(self, share: float, progress: float) -> None:
        """Aim at the room that is to be left by now."""
        self.target = goal(self.inside, self.room, share, progress)

    def relevance_of(self, parameter: nn.Parameter, axis: int, at: Tensor) -> Tensor | None:
        """The relevance that moved A in this step, of mean one, in some rows of a parameter.

        It is known until the optimizer moves; None if nothing moved A.

        Args:
            parameter: one of the layer's.
            axis: the dimension that counts rows.
            at: which rows.
        """
        if not self._moved or parameter.grad is None:
            return None
        moved = [p for p in self.names if p.grad is not None]
        total = sum(
            self.mu_of(g, t).sum().item() for p in moved for g, t in blocks(dense_gradient(p), p)
        )
        gradient, theta = (
            t.detach().index_select(axis, at) for t in (dense_gradient(parameter), parameter)
        )
        return self.mu_of(gradient, theta) * (sum(self.whole[p] for p in moved) / total)

    def stepped(self) -> None:
        """End the step: with apply="step" the running availabilities take effect."""
        if self.at_once:
            for parameter, A in self.running.items():
                self.applied[parameter].copy_(A)
                self.plastic[parameter] = False

    def snapshot(self) -> None:
        """Apply the running availabilities of this moment from now on."""
        for parameter, A in self.running.items():
            self.applied[parameter].copy_(A)
        self.advances = [0] * len(self.names)
        self.take_stock()

    def take_stock(self) -> None:
        """Note what the applied availabilities are: whether all of each are 1, and their sum."""
        for parameter, A in self.applied.items():
            self.plastic[parameter] = bool((local(A) == 1).all())
        self.room = self.inside = sum(map(sum_over, self.applied.values()))

    def entries(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Each parameter as (name, running, applied)."""
        for parameter, name in self.names.items():
            yield name, self.running[parameter], self.applied[parameter]

    def to(self, device: torch.device) -> None:
        """Move to the device of the model."""
        if next(iter(self.running.values())).device != device:
            self.running = {p: A.to(device) for p, A in self.running.items()}
            self.applied = {p: A.to(device) for p, A in self.applied.items()}


def sum_over(A: Tensor) -> float:
    """The sum of availabilities, over the pieces of all processes where they are sharded."""
    return over_pieces(local(A).sum(), [A]).item()


def blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Matching pieces of tensors of the same shape, small enough for the cache.

    >>> [piece.numel() for piece, _ in blocks(torch.ones(300_000), torch.ones(300_000))]
    [262144, 37856]
    """
    if tensors[0].numel() > BLOCK and all(t.is_contiguous() for t in tensors):
        yield from zip(*(t.view(-1).split(BLOCK) for t in tensors), strict=True)
    else:
        yield tensors
