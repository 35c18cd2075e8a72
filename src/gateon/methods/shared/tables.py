"""State by parameter name, {name: tensor like the parameter}, cut for a sub-network."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...subnetwork.part import Cut
from ..base import Adopt, Batch, Method, Narrowed

__all__ = ["NarrowedTables"]


class NarrowedTables(Narrowed):
    """A twin of a method that holds the part of its tables inside the cut.

    All calls of a step go to the twin, which is prepared for the sub-network: so `prepare` of such
    a method must not change the model.

    Args:
        method: the one that serves the whole network.
        tables: its attributes that are such tables.
        moving: those of them that change from step to step, and not only when a task ends.
        plain: other attributes that both have alike, such as counts.

    >>> class Pull(Method):  # towards where the parameters were at the end of the last task
    ...     def __init__(self):
    ...         self.anchor = {}
    ...     def penalty(self, model, batch):
    ...         named = dict(model.named_parameters())
    ...         return sum(((named[n] - a) ** 2).sum() for n, a in self.anchor.items())
    ...     def end_task(self, model, task, data):
    ...         self.anchor = {n: p.detach().clone() for n, p in model.named_parameters()}
    ...     def narrowed(self):
    ...         return NarrowedTables(self, ["anchor"])
    """

    def __init__(
        self,
        method: Method,
        tables: Sequence[str],
        moving: Sequence[str] = (),
        plain: Sequence[str] = (),
    ) -> None:
        super().__init__(method)
        self.tables, self.moving, self.plain = tables, moving, plain

    def take(self, cut: Cut, network: nn.Module) -> None:
        """Make the twin, and cut the tables for it."""
        self.cut, self.twin = cut, copy(self.method)
        self.adopt: Adopt | None = self.twin.prepare(network)
        self.renew()

    def follow(self, optimizer: Optimizer) -> None:
        """Let the twin follow it."""
        if self.adopt is not None:
            self.adopt(optimizer)

    def penalty(self, network: nn.Module, batch: Batch) -> Tensor | None:
        """That of the twin."""
        return self.twin.penalty(network, batch)

    def stepped(self, network: nn.Module, optimizer: Optimizer) -> None:
        """Tell the twin."""
        self.twin.stepped(network, optimizer)

    def renew(self) -> None:
        """Cut all tables anew."""
        for table in self.tables:
            whole: dict[str, Tensor] = getattr(self.method, table)
            setattr(self.twin, table, {n: self.cut.take(n, t) for n, t in whole.items()})
        for name in self.plain:
            setattr(self.twin, name, getattr(self.method, name))

    @torch.no_grad()
    def put_back(self) -> None:
        """Write the tables that move back into the whole ones."""
        for table in self.moving:
            whole: dict[str, Tensor] = getattr(self.method, table)
            for name, part in getattr(self.twin, table).items():
                self.cut.put(name, whole[name], part)
        for name in self.plain:
            setattr(self.method, name, getattr(self.twin, name))
