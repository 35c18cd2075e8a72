"""RMN, relevance mapping networks: a learned map of the weights each task uses and freezes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import register_parametrization
from torch.optim import Optimizer

from ..anatomy.contextual import Contextual, own_by_context
from ..anatomy.converting import context_norms
from ..anatomy.norm import follow_norms
from .base import Adopt, Batch
from .shared.scaled import Scaled, scale_updates

__all__ = ["RMN", "RelevanceMap"]

CERTAIN = 0.999999  # softround of a weight that stays when a map is pruned
SMALLEST = 1e-5  # |w| softround(p) of such a weight


class RelevanceMap(Contextual):
    """Turns a weight W into W * softround(P_k), softround(p) = sigmoid(beta (p - 1/2)).

    In evaluation, and once the task is over, P_k is rounded to 0 or 1 instead.

    Args:
        like: the parameter it is a map of.
        beta: how steep softround is.
        seed: of the maps, drawn from U(0, high).
        high: their largest value.
    """

    used: Tensor  # by the map of any task that is over
    over: Tensor  # which contexts are
    batches: Tensor  # learned in each context

    def __init__(self, like: Tensor, beta: float, seed: tuple[int, int], high: float = 1.0) -> None:
        super().__init__()
        self.beta, self.high, self.seed = beta, high, seed
        self.maps = nn.ParameterList()
        self.register_buffer("used", torch.zeros_like(like, dtype=torch.bool))
        self.register_buffer("over", torch.zeros(0, dtype=torch.bool))
        self.register_buffer("batches", torch.zeros(0, dtype=torch.long))
        self._like = like.detach()[:0]
        self.add_context()

    @property
    def contexts(self) -> int:
        """How many have a map."""
        return len(self.maps)

    @property
    def map(self) -> Tensor:
        """P of the active context."""
        found: Tensor = self.maps[self.context]
        return found

    def add_context(self) -> None:
        """Add a map, which does not depend on how many there are."""
        number = int(np.random.SeedSequence((*self.seed, self.contexts)).generate_state(1)[0])
        values = self.high * torch.rand(
            self.used.shape, generator=torch.Generator().manual_seed(number)
        )
        self.maps.append(nn.Parameter(values.to(self.used.device, self._like.dtype)))
        self.over = torch.cat([self.over, self.over.new_zeros(1)])
        self.batches = torch.cat([self.batches, self.batches.new_zeros(1)])

    def softround(self) -> Tensor:
        """sigmoid(beta (P - 1/2)) of the active context."""
        return torch.sigmoid(self.beta * (self.map - 0.5))

    def forward(self, weight: Tensor) -> Tensor:
        """The weight as the active context uses it."""
        if self.training and not self.over[self.context]:
            return weight * self.softround()
        return weight * (self.map.detach() > 0.5)

    @torch.no_grad()
    def prune(self, weight: Tensor) -> None:
        """Permanently drop weights that are not certain to be used, or are almost 0."""
        soft = self.softround()
        self.map.masked_fill_((soft <= CERTAIN) | (soft * weight.abs() <= SMALLEST), 0)

    @torch.no_grad()
    def finish(self, weight: Tensor) -> None:
        """End the task: fix its map, and reserve the weights it uses."""
        if not self.over[self.context]:
            self.prune(weight)
        self.used |= self.map > 0.5
        self.over[self.context] = True

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        while f"{prefix}maps.{self.contexts}" in state:
            self.add_context()
        super()._load_from_state_dict(state, prefix, *rest)


@dataclass
class RMN(Scaled):
    """Relevance mapping networks.

    Layers share weights W; task k computes with W * softround(P_k), softround(p) = sigmoid(beta (p
    - 1/2)). P_k starts uniform in [0, 1] and is learned with W. In the last part of a task, P is
    set to 0 where softround(P) <= 0.999999 or softround(P) |W| <= 1e-5. When the task is over its
    map is rounded and kept, and weights used by the map of any task are put back after every later
    step.

    Kaushik, Gain, Kortylewski and Yuille, "Understanding catastrophic forgetting and remembering in
    continual learning with optimal relevance mapping", 2021. There every task has an output layer
    (`TaskHeads`, which are left alone here) and norms of its own: every BatchNorm becomes a
    ContextNorm. Biases have maps like weights. Other parameters (scales and shifts of norms,
    embeddings) belong to the first task and stay as it leaves them.

    Args:
        beta: how steep softround is.
        steps: batches of a task, which decide when its last part begins; none prunes once, at the
            end of the task.
        prune_after: share of a task's batches before its last part begins.
        l1: weight of the mean of softround(P) in the loss: smaller maps leave more weights to later
            tasks.
        high: P starts uniform in [0, high]. Few entries far from 1/2 ever move, so this decides how
            many weights a task takes: about 36 % of them at 1, as published, and 20 % at 0.8.
        seed: of the maps.

    >>> RMN().name
    'rmn'
    """

    name = "rmn"
    label_at_test = True

    beta: float = 100.0
    steps: int | None = None
    prune_after: float = 0.4
    l1: float = 0.0
    high: float = 1.0
    seed: int = 0

    _maps: list[tuple[nn.Parameter, RelevanceMap]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    _rest: list[nn.Parameter] = field(default_factory=list, init=False, repr=False, compare=False)

    def prepare(self, model: nn.Module) -> Adopt:
        """Give every Linear and convolution maps, and every norm statistics per context."""
        if (
            self.beta <= 0
            or self.l1 < 0
            or not 0 <= self.prune_after <= 1
            or (self.steps is not None and self.steps < 1)
        ):
            raise ValueError(
                "RMN needs beta above 0, l1 of at least 0, prune_after in [0, 1], and steps of at "
                "least 1 or None."
            )
        if not 0.5 < self.high <= 1:
            raise ValueError(
                "high is above 0.5, where a map begins to use a weight, and at most 1, not "
                f"{self.high}."
            )
        layers = [
            m
            for m in model.modules()
            if isinstance(m, nn.Linear | _ConvNd) and not isinstance(m, Contextual)
        ]
        if not layers:
            raise ValueError(
                f"{type(model).__name__} has no Linear or convolution whose weights tasks could "
                "share."
            )
        self.begin()
        self._maps = []
        own = own_by_context(model)
        context_norms(model)
        follow_norms(model)
        for layer in layers:
            for name, parameter in list(layer.named_parameters(recurse=False)):
                made = RelevanceMap(
                    parameter, self.beta, (self.seed, len(self._maps)), self.high
                ).train(layer.training)
                register_parametrization(layer, name, made)
                self._maps.append((parameter, made))
        mapped = {p for p, _ in self._maps} | {p for _, m in self._maps for p in m.parameters()}
        self._rest = [p for p in model.parameters() if p not in mapped | own]
        return lambda optimizer: scale_updates(optimizer, self.factors)

    def penalty(self, model: nn.Module, batch: Batch) -> Tensor | None:
        """l1 times the mean of softround(P)."""
        if self.l1 == 0:
            return None
        total = torch.stack([relevance.softround().sum() for _, relevance in self._maps]).sum()
        return self.l1 * total / sum(p.numel() for p, _ in self._maps)

    def stepped(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Prune, in the last part of a task."""
        for weight, relevance in self._maps:
            k = relevance.context
            relevance.batches[k] += 1
            if (
                self.steps is not None
                and relevance.batches[k] > self.prune_after * self.steps
                and not relevance.over[k]
            ):
                relevance.prune(weight)

    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Keep the map and the weights it uses."""
        for weight, relevance in self._maps:
            relevance.finish(weight)
        self.task_over()

    def derived(self) -> dict[nn.Parameter, Tensor]:
        """0 for what earlier tasks use, 1 for what is free."""
        taken = {weight: (~relevance.used).to(weight) for weight, relevance in self._maps}
        return taken | {parameter: torch.zeros_like(parameter) for parameter in self._rest}
