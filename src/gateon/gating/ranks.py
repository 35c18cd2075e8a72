"""Ranks of LoRA as units: those that are closed in every context at hand are not computed.

A closed rank has gain 0 for good, so B[:, open] (g A[open] x) is B (g A x), at a fraction of the
cost. A and B keep all ranks: their open ones are selected in every forward pass, and gradients of
the others are zero.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..anatomy.shards import is_sharded
from ..anatomy.sites import Site
from .gate import Gate

__all__ = ["RankGate", "can_select", "compute_all", "compute_open"]


class RankGate(Gate):
    """The gate of the ranks of one LoRA layer, of which only the open ones are computed.

    Its gain is 1 + tanh(v): 1 where an open rank starts, and exactly 0 where it is closed for good.
    """

    selected: Tensor | None = None  # the ranks open in a context that is shown; None: all of them

    @property
    def open(self) -> Tensor | None:
        """The ranks to compute; None: all of them."""
        return None if self.off else self.selected

    @property
    def width(self) -> int:
        """How many ranks are computed."""
        return self.site.units if self.open is None else len(self.open)

    def computed(self, values: Tensor) -> Tensor:
        """Those of the ranks that are computed, along the last dimension."""
        return values if self.open is None else values.index_select(-1, self.open)

    def show(self, context: int | Tensor) -> None:
        """Use the gains of this context, or of one for each sample."""
        super().show(context)
        self._select()

    def _select(self) -> None:
        with torch.no_grad():
            # With rows kept elsewhere the context is that of the row at work; pieces are joined.
            rows = self.context if is_sharded(self.weight) else None
            is_open = (self.gain(rows) > 0).any(0)
        if not is_open.is_meta:  # a template without numbers
            self.selected = None if bool(is_open.all()) else is_open.nonzero().flatten()

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: object) -> None:
        super()._load_from_state_dict(state, prefix, *rest)
        self._select()

    def _apply(self, fn: object, recurse: bool = True) -> RankGate:
        super()._apply(fn, recurse)
        if self.selected is not None and self.weight is not None:
            self.selected = self.selected.to(self.weight.device)
        return self


class OpenRows(nn.Linear):
    """A of a LoRA layer, which computes the open ranks only."""

    def forward(self, x: Tensor) -> Tensor:
        """A[open] x."""
        gate = self._modules["context_gate"]
        assert isinstance(gate, RankGate)
        open = gate.open
        return F.linear(x, self.weight if open is None else self.weight.index_select(0, open))


class OpenColumns(nn.Linear):
    """B of a LoRA layer, which reads the open ranks only."""

    ranks: tuple[RankGate]  # in a tuple, which registers no submodule

    def forward(self, x: Tensor) -> Tensor:
        """B[:, open] x."""
        open = self.ranks[0].open
        weight = self.weight if open is None else self.weight.index_select(1, open)
        return F.linear(x, weight, self.bias)


def can_select(model: nn.Module, site: Site) -> bool:
    """Whether A and B of a site are plain Linears, as those of adapters on convolutions are not."""
    if len(site.columns) != 1:
        return False
    rows, columns = (model.get_submodule(name) for name in (site.name, *site.columns))
    return type(rows) is type(columns) is nn.Linear and rows.bias is None


def compute_open(model: nn.Module, site: Site, gate: RankGate) -> None:
    """Let A and B of a site compute the ranks that its gate has open."""
    rows, columns = (model.get_submodule(name) for name in (site.name, *site.columns))
    rows.__class__, columns.__class__ = OpenRows, OpenColumns
    columns.ranks = (gate,)  # type: ignore[assignment]
    gate.show(0)


def compute_all(module: nn.Module) -> None:
    """Undo `compute_open`."""
    if isinstance(module, OpenRows | OpenColumns):
        module.__dict__.pop("ranks", None)
        module.__class__ = nn.Linear  # type: ignore[assignment]
