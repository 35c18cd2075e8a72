"""HAT, hard attention to the task: learned masks over units, whose weights later tasks keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..anatomy.composite import is_composite
from ..anatomy.contextual import Contextual
from ..anatomy.kinds import is_layer, spread, spread_inputs
from ..anatomy.norm import follow_norms
from ..anatomy.sites import Site, find_sites
from .base import Adopt, Batch
from .shared.places import install
from .shared.scaled import Scaled, scale_updates

__all__ = ["HAT", "UnitMask"]

COSH = 50.0  # of a larger argument it would overflow


class UnitMask(Contextual):
    """Multiplies the units of one place by a = sigmoid(s e_k), e_k learned for every context.

    In training s runs from 1 / s_max to s_max over `cycle` batches and starts over; in evaluation
    it is s_max.

    Args:
        site: the place.
        s_max: the largest s: how hard masks become.
        cycle: batches from the least s to the largest.
        seed: of the embeddings of this place, drawn from N(0, 1).
    """

    cumulative: Tensor  # the largest mask of the tasks so far
    importance: Tensor  # the sum of their masks
    batches: Tensor  # learned in each context

    def __init__(self, site: Site, s_max: float, cycle: int, seed: tuple[int, int]) -> None:
        super().__init__()
        self.site, self.s_max, self.cycle, self.seed = site, s_max, cycle, seed
        self.embeddings = nn.ParameterList()
        self.register_buffer("cumulative", torch.zeros(site.units))
        self.register_buffer("importance", torch.zeros(site.units))
        self.register_buffer("batches", torch.zeros(0, dtype=torch.long))
        self.add_context()

    @property
    def contexts(self) -> int:
        """How many have an embedding."""
        return len(self.embeddings)

    @property
    def embedding(self) -> Tensor:
        """e of the active context."""
        found: Tensor = self.embeddings[self.context]
        return found

    @property
    def s(self) -> float:
        """How hard the mask is now."""
        if not self.training or self.cycle == 1:
            return self.s_max
        place = int(self.batches[self.context]) % self.cycle / (self.cycle - 1)
        return 1 / self.s_max + (self.s_max - 1 / self.s_max) * place

    def add_context(self) -> None:
        """Add an embedding, which does not depend on how many there are."""
        number = int(np.random.SeedSequence((*self.seed, self.contexts)).generate_state(1)[0])
        row = torch.randn(self.site.units, generator=torch.Generator().manual_seed(number))
        self.embeddings.append(nn.Parameter(row.to(self.cumulative)))
        self.batches = torch.cat([self.batches, self.batches.new_zeros(1)])

    def mask(self, s: float | None = None) -> Tensor:
        """a of the active context, (units,)."""
        return torch.sigmoid((self.s if s is None else s) * self.embedding)

    def used(self) -> Tensor:
        """R = sum a (1 - a_cum) / sum (1 - a_cum): how much of what is free the mask takes."""
        free = 1 - self.cumulative
        return (self.mask() * free).sum() / free.sum().clamp_min(torch.finfo(free.dtype).tiny)

    def forward(self, x: Tensor) -> Tensor:
        """x times the mask; after flattening, every unit is at several positions."""
        mask, dim = self.mask().to(x.dtype), self.site.dim
        shape = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
        return x * mask.repeat_interleave(x.shape[dim] // self.site.units).view(shape)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        while f"{prefix}embeddings.{self.contexts}" in state:
            self.add_context()
        super()._load_from_state_dict(state, prefix, *rest)


@dataclass
class HAT(Scaled):
    """Hard attention to the task.

    Units are multiplied by a = sigmoid(s e_k). After a task a_cum <- max(a_cum, a). The update of
    w_ij, from unit j to unit i, is scaled by 1 - min(a_cum_i, a_cum_j), that of a bias by 1 -
    a_cum_i; inputs and outputs count as units that every task uses. Added to the loss: strength *
    sum a (1 - a_cum) / sum (1 - a_cum) over all units. The gradient of e is multiplied by (s_max /
    s) (cosh(s e) + 1) / (cosh(e) + 1), which undoes the sigmoid's flatness at large s, and e is
    clipped to [-6, 6].

    Serra, Suris, Miron and Karatzoglou, "Overcoming catastrophic forgetting with hard attention to
    the task", ICML 2018. There: plain SGD, `TaskHeads`, which are left free here, and dropout. With
    a single head the weights that read used units, and its bias, are protected too. An optimizer
    other than plain SGD has its update scaled instead of its gradient. Norms that keep statistics
    per context are switched; scales and shifts are masked like biases.

    Args:
        strength: lambda, the penalty on using free units.
        s_max: the largest s; masks become harder with it.
        steps: number of batches in which s rises from 1 / s_max to s_max before it starts again; an
            epoch as published. Ideally a divisor of a task's number of batches.
        largest: bound on the absolute value of embeddings.
        clip: the norm at which gradients are clipped.
        example: one batch of input, for models whose layers cannot be followed without data.
        seed: of the embeddings.

    >>> HAT(steps=100).name
    'hat'
    """

    name = "hat"
    label_at_test = True

    strength: float = 0.75
    s_max: float = 400.0
    steps: int = 250
    largest: float = 6.0
    clip: float = 1e4
    example: Any = field(default=None, repr=False)
    seed: int = 0

    masks: dict[str, UnitMask] = field(default_factory=dict, init=False, repr=False, compare=False)
    _owned: list[_Owned] = field(default_factory=list, init=False, repr=False, compare=False)

    def prepare(self, model: nn.Module) -> Adopt:
        """Put masks behind the hidden layers."""
        if (
            self.strength < 0
            or self.s_max <= 1
            or self.steps < 1
            or self.largest <= 0
            or self.clip <= 0
        ):
            raise ValueError(
                "HAT needs strength of at least 0, s_max above 1, steps of at least 1, and largest "
                "and clip above 0."
            )
        sites = find_sites(model, None, self.example)
        self.begin()
        self.masks, self._owned = {}, owned_by(model, sites)
        like = next(model.parameters())
        for n, site in enumerate(s for s in sites if s.gated):
            self.masks[site.name] = UnitMask(site, self.s_max, self.steps, (self.seed, n)).to(like)
            install(model, site, self.masks[site.name])
        follow_norms(model)
        return self._adopt

    def penalty(self, model: nn.Module, batch: Batch) -> Tensor | None:
        """strength * sum a (1 - a_cum) / sum (1 - a_cum)."""
        free = [1 - mask.cumulative for mask in self.masks.values()]
        room = torch.stack([f.sum() for f in free]).sum()
        if self.strength == 0 or room <= 0:
            return None
        taken = torch.stack(
            [(mask.mask() * f).sum() for mask, f in zip(self.masks.values(), free, strict=True)]
        ).sum()
        return self.strength * taken / room

    def stepped(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Advance to the next s."""
        for mask in self.masks.values():
            mask.batches[mask.context] += 1

    @torch.no_grad()
    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Keep what the mask of the task uses."""
        for mask in self.masks.values():
            hard = mask.mask(self.s_max)
            mask.cumulative.copy_(torch.maximum(mask.cumulative, hard))
            mask.importance.add_(hard)
        self.task_over()

    def derived(self) -> dict[nn.Parameter, Tensor]:
        """1 - min(a_cum_i, a_cum_j), by which updates are scaled."""
        return {o.parameter: 1 - self._at_both_ends(o, "cumulative", 1.0) for o in self._owned}

    def _at_both_ends(self, owned: _Owned, measure: str, of_shared: float) -> Tensor:
        """The smaller measure of the unit a parameter makes and of the one it reads.

        Args:
            owned: the parameter.
            measure: attribute of masks.
            of_shared: the measure of units without a mask, which every task uses.
        """
        parameter, mask = owned.parameter, self.masks.get(owned.site)
        made = (
            None
            if mask is None
            else spread(
                owned.module, owned.name, getattr(mask, measure), multiplied=mask.site.multiplied
            )
        )
        smaller = parameter.new_full((1,), of_shared) if made is None else made
        if owned.source is not None:
            smaller = torch.minimum(
                smaller,
                spread_inputs(owned.module, parameter, getattr(self.masks[owned.source], measure)),
            )
        return smaller.expand_as(parameter).contiguous()

    def _adopt(self, optimizer: Optimizer) -> None:
        optimizer.register_step_pre_hook(self._compensate)
        scale_updates(optimizer, self.factors)
        optimizer.register_step_pre_hook(partial(_clip_gradients, self.clip))
        optimizer.register_step_post_hook(self._clip_embeddings)

    @torch.no_grad()
    def _compensate(self, *_: Any) -> None:
        for mask in self.masks.values():
            e, s = mask.embedding, mask.s
            if e.grad is not None:
                e.grad.mul_(
                    self.s_max
                    / s
                    * (torch.cosh((s * e).clamp(-COSH, COSH)) + 1)
                    / (torch.cosh(e) + 1)
                )

    @torch.no_grad()
    def _clip_embeddings(self, *_: Any) -> None:
        for mask in self.masks.values():
            mask.embedding.clamp_(-self.largest, self.largest)


@dataclass(frozen=True)
class _Owned:
    """A parameter, the site whose units it makes, and the only site whose units it reads."""

    parameter: nn.Parameter
    module: nn.Module
    name: str
    site: str
    source: str | None


def owned_by(model: nn.Module, sites: list[Site]) -> list[_Owned]:
    """Every parameter that tasks share; heads of their own are not shared."""
    found = []
    for site in sites:
        for owner in site.owns:
            module = model.get_submodule(owner)
            if isinstance(module, Contextual) and not module.shared:
                continue
            # `narrows`: no sum comes between the two, so that nothing but these units reaches the
            # reader.
            sources = [
                s.name
                for s in sites
                if owner in s.readers and s.gated and s.narrows and is_layer(module)
            ]
            for name, parameter in module.named_parameters(recurse=is_composite(module)):
                source = sources[0] if sources and parameter.dim() > 1 else None
                found.append(_Owned(parameter, module, name, site.name, source))
    return found


def _clip_gradients(largest: float, optimizer: Optimizer, *_: Any) -> None:
    nn.utils.clip_grad_norm_(
        [p for group in optimizer.param_groups for p in group["params"]], largest
    )
