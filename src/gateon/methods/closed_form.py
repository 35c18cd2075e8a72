"""RanPAC and nearest class means: after the first task only sums are learned, in closed form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..anatomy.contextual import Contextual
from ..anatomy.sites import find_sites
from ..detection.ridge import Ridge
from .base import Adopt, Method
from .shared.calls import check_strength, evaluating, logits, moved

__all__ = ["NCM", "ClassMeans", "ClosedFormHead", "RanPAC"]


class Sums(Protocol):
    """Statistics of features by class, to which samples are only ever added."""

    def add(self, x: Tensor, y: Tensor, classes: int) -> None:
        """Add samples and their labels."""

    def scores(self, x: Tensor) -> Tensor:
        """The score of every class, (samples, classes)."""

    def state_dict(self) -> dict[str, Any]:
        """The sums."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class ClassMeans:
    """Sums of features by class.

    scores = 2 m_y x - |m_y|^2, the highest of which is that of the nearest mean m_y.

    >>> means = ClassMeans(2)
    >>> means.add(torch.tensor([[0.0, 4.0], [4.0, 0.0]]), torch.tensor([0, 1]), classes=2)
    >>> means.scores(torch.tensor([[1.0, 3.0]])).argmax(1)
    tensor([0])
    """

    def __init__(self, inputs: int) -> None:
        self.sums, self.counts = torch.zeros(0, inputs), torch.zeros(0)

    def add(self, x: Tensor, y: Tensor, classes: int) -> None:
        """Add samples and their labels."""
        more = classes - len(self.sums)
        self.sums = nn.functional.pad(self.sums, (0, 0, 0, more)).index_add_(0, y, x.float())
        self.counts = nn.functional.pad(self.counts, (0, more)) + y.bincount(minlength=classes)

    def scores(self, x: Tensor) -> Tensor:
        """The score of every class; minus infinity where a class has no sample."""
        means = self.sums / self.counts.clamp_min(1)[:, None]
        scores: Tensor = 2 * x.float() @ means.T - means.square().sum(1)
        return scores.masked_fill(self.counts == 0, -torch.inf)

    def state_dict(self) -> dict[str, Any]:
        """The sums."""
        return {"sums": self.sums.clone(), "counts": self.counts.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.sums, self.counts = state["sums"].clone(), state["counts"].clone()


class ClosedFormHead(nn.Linear):
    """A Linear that is trained as usual, but predicts from sums once there are any.

    Args:
        linear: the layer it replaces, whose parameters it takes over.
        sums: of the features that reach it.
    """

    def __init__(self, linear: nn.Linear, sums: Sums) -> None:
        super().__init__(linear.in_features, linear.out_features, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.sums, self.begun = sums, False
        self.labels: Tensor | None = None  # of the batch whose features are added

    def forward(self, x: Tensor) -> Tensor:
        """Outputs; after the first task nothing in front of it is learned."""
        if self.labels is not None:
            self.sums.add(self._scaled(x), self.labels.cpu(), self.out_features)
        if self.training or not self.begun:
            return super().forward(x.detach() if self.begun else x)
        return self.sums.scores(self._scaled(x)).to(x.device)

    def _scaled(self, x: Tensor) -> Tensor:
        length: float = self.in_features**0.5
        return x.detach().float().cpu() / length


@dataclass
class NCM(Method):
    """Nearest class mean on frozen features (Mensink et al. 2013, TPAMI 35:2624).

    The network learns the first task and is frozen, statistics of norms included. After every task
    the features of its samples, as they reach the last Linear, are added to the mean of their
    class. Labels are predicted by the nearest mean; the task need not be known and no samples are
    stored. After the first task the last Linear still learns, but only the loss shown depends on
    it.

    >>> NCM().name
    'ncm'
    """

    head: ClosedFormHead | None = field(default=None, init=False, repr=False, compare=False)
    kept: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    name = "ncm"

    def sums(self, inputs: int) -> Sums:
        """The statistics of features."""
        return ClassMeans(inputs)

    def prepare(self, model: nn.Module) -> Adopt | None:
        """Let the last Linear predict from sums."""
        heads = [site.name for site in find_sites(model, None) if site.head]
        last = model.get_submodule(heads[0]) if len(heads) == 1 else None
        if not isinstance(last, nn.Linear) or isinstance(last, Contextual):
            raise ValueError(
                f"{self.name} predicts with one output layer for all tasks: give it a network that "
                "ends with one Linear (--network.heads shared)."
            )
        self.kept, self.head = {}, ClosedFormHead(last, self.sums(last.in_features))
        parent, _, child = heads[0].rpartition(".")
        setattr(model.get_submodule(parent), child, self.head)
        return None

    def stepped(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Put statistics of norms back, which training moves."""
        buffers = dict(model.named_buffers())
        for name, value in self.kept.items():
            buffers[name].copy_(value)

    @torch.no_grad()
    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Add the features of a task."""
        head = self._head()
        try:
            with evaluating(model):
                for x, y in data:
                    head.labels = y
                    logits(model, moved(x, model))
        finally:
            head.labels = None
        if not head.begun:
            head.begun = True
            self.kept = {name: value.clone() for name, value in model.named_buffers()}

    def state_dict(self) -> dict[str, Any]:
        """The sums, whether the first task is over, and the statistics it left."""
        head = self._head()
        return {"begun": head.begun, "sums": head.sums.state_dict(), "kept": dict(self.kept)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        head = self._head()
        head.sums.load_state_dict(state["sums"])
        head.begun = bool(state["begun"])
        self.kept = {name: value.clone() for name, value in state["kept"].items()}

    def _head(self) -> ClosedFormHead:
        if self.head is None:
            raise RuntimeError(f"{self.name} has no network yet: call prepare first.")
        return self.head


@dataclass
class RanPAC(NCM):
    """Random projections and ridge regression (McDonnell et al. 2023, NeurIPS): see `Ridge`.

    As `NCM`, but labels are predicted by a ridge regression on random features. Two things are
    not as published: the network itself learns the first task, where the publication trains
    adapters in a pretrained one; and `strength` is given, not chosen on a fifth of each task.

    Args:
        width: random features; 10,000 in the publication.
        strength: of the ridge.
        seed: of the random features.

    >>> RanPAC().name
    'ranpac'
    """

    width: int = 2000
    strength: float = 10.0
    seed: int = 0

    name = "ranpac"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check_strength("strength", self.strength)

    def sums(self, inputs: int) -> Sums:
        """The statistics of features."""
        return Ridge(inputs, self.width, self.strength, self.seed)
