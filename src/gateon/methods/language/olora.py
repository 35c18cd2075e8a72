"""O-LoRA: every task has ranks of its own, kept orthogonal to those of earlier tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...anatomy.kinds import spread, spread_columns
from ...anatomy.ranks import rank_sites
from ...gating.gates import gates_of
from ..base import Adopt, Batch, Outline
from ..shared.scaled import Scaled, scale_updates

__all__ = ["OLoRA", "overlap"]


@dataclass
class OLoRA(Scaled):
    """Orthogonal low-rank adaptation.

    Task t learns `ranks` rows of A and columns of B in every LoRA layer, A_t and B_t; those of
    earlier tasks are frozen. The output is that of all of them, W x + s sum_t B_t A_t x, so that
    the task need not be given at test. Added to the loss, summed over layers:

        strength * sum_{u < t} sum_ij |A_u A_t^T|_ij  +  shrink * (|A_t| + |B_t|)

    where |A_t| and |B_t| are Euclidean norms. Later tasks have B_t = 0 until it is their turn, so
    one adapter that is as large as all tasks need computes what adapters added one by one would.

    Wang, Chen, Ge, Xia, Bao, Zheng, Zhang, Gui and Huang, "Orthogonal subspace learning for language
    model continual learning", Findings of EMNLP 2023. There: T5-large and LLaMA-7B, query and value
    layers, rank 8 and s = 4, AdamW at 1e-3, one epoch; strengths tuned by hand for each task. The
    sum is of absolute values, as in their code.

    Args:
        ranks: of every layer, for each task.
        strength: lambda_1, the penalty on overlap with earlier tasks.
        shrink: lambda_2, the penalty on norms.

    >>> OLoRA(ranks=4).name
    'o-lora'
    """

    name = "o-lora"

    ranks: int = 8
    strength: float = 0.5
    shrink: float = 0.0

    _layers: list[_Layer] = field(default_factory=list, init=False, repr=False, compare=False)

    def prepare(self, model: nn.Module) -> Adopt:
        """Find the LoRA layers; the weights they adapt are frozen by PEFT."""
        if self.ranks < 1 or self.strength < 0 or self.shrink < 0:
            raise ValueError(
                "O-LoRA needs ranks of at least 1, and strength and shrink of at least 0."
            )
        if gates_of(model) is not None:
            raise ValueError(
                "O-LoRA uses the ranks of all tasks, and this model has gates that close some: "
                "detach() them first."
            )
        found = [
            _Layer(model.get_submodule(site.name), model.get_submodule(site.columns[0]), site.units)
            for site in rank_sites(model)
            if site.gated
        ]
        if not found:
            raise ValueError(
                f"{type(model).__name__} has no LoRA layers: call peft.get_peft_model first."
            )
        least = min(layer.units for layer in found)
        if self.ranks > least:
            raise ValueError(
                f"O-LoRA has {self.ranks} ranks a task, but the adapters have {least}."
            )
        if any(layer.columns.weight.any() for layer in found):
            raise ValueError(
                "O-LoRA starts from adapters that do nothing yet, with B = 0: make new ones with "
                "init_lora_weights=True."
            )
        self.begin()
        self._layers = found
        return self._adopt

    def expect(self, outline: Outline) -> None:
        """Refuse a task for which no ranks are left."""
        self._turn()

    def penalty(self, model: nn.Module, batch: Batch | None = None) -> Tensor | None:
        """What is added to the loss: overlap with earlier tasks, and norms."""
        mine = self._turn()
        parts = []
        for layer in self._layers:
            A, B = layer.rows.weight.flatten(1), layer.columns.weight.transpose(0, 1).flatten(1)
            if self.strength and mine.start:
                parts.append(self.strength * overlap(A[: mine.start].detach(), A[mine]))
            if self.shrink:
                parts.append(self.shrink * (A[mine].norm() + B[mine].norm()))
        return torch.stack(parts).sum() if parts else None

    def end_task(
        self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]] = ()
    ) -> None:
        """Freeze the ranks of the task; it is the next ones' turn."""
        self.task_over()

    def factors(self) -> dict[nn.Parameter, Tensor]:
        """1 for the ranks of this task, 0 for all others; also in the first."""
        if not self._factors:
            self._factors = self.derived()
        return self._factors

    def derived(self) -> dict[nn.Parameter, Tensor]:
        """Which rows of A and which columns of B are learned."""
        mine, found = self._turn(), dict[nn.Parameter, Tensor]()
        for layer in self._layers:
            is_mine = torch.zeros_like(layer.rows.weight[:, :1].flatten())
            is_mine[mine] = 1
            rows = spread(layer.rows, "weight", is_mine)
            columns = spread_columns(layer.columns, "weight", is_mine)
            assert rows is not None and columns is not None
            found |= {layer.rows.weight: rows, layer.columns.weight: columns}
        return found

    def _turn(self) -> slice:
        """The ranks of the task at hand."""
        mine = slice(self.tasks * self.ranks, (self.tasks + 1) * self.ranks)
        least = min(layer.units for layer in self._layers)
        if mine.stop > least:
            raise ValueError(
                f"The adapters have {least} ranks, enough for {self.tasks} tasks of {self.ranks}: "
                "give them a larger rank, or O-LoRA fewer ranks a task."
            )
        return mine

    def _adopt(self, optimizer: torch.optim.Optimizer) -> None:
        scale_updates(optimizer, self.factors)


@dataclass(frozen=True)
class _Layer:
    """A and B of one LoRA layer, and how many ranks they have."""

    rows: Any
    columns: Any
    units: int


def overlap(old: Tensor, new: Tensor) -> Tensor:
    """sum_ij |A_old A_new^T|_ij: 0 where the rows of both are orthogonal.

    >>> overlap(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0], [3.0, 1.0]]))
    tensor(3.)
    """
    return (old @ new.T).abs().sum()
