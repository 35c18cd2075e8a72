"""State by parameter name, {name: tensor like the parameter}, cut for a sub-network."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...subnetwork.part import Cut
from ..base import Adopt, Method, Narrowed

__all__ = ["Tables", "narrowed_tables"]


def narrowed_tables(
    whole: Method,
    tables: Sequence[str],
    *,
    moving: Sequence[str] = (),
    plain: Sequence[str] = (),
) -> Narrowed:
    """A method whose state is in tables, at work in a sub-network.

    A twin of it is prepared for the sub-network and gets the calls of every step: so `prepare` of
    such a method must not change the model.

    Args:
        whole: the method that serves the whole network.
        tables: its attributes that are tables by parameter name.
        moving: those of them that change from step to step, and not only when a task ends.
        plain: other attributes that both have alike, such as counts.

    >>> class Pull(Method):  # towards where the last task left the parameters
    ...     def __init__(self):
    ...         self.anchor = {}
    ...     def penalty(self, model, batch):
    ...         named = dict(model.named_parameters())
    ...         return sum(((named[n] - a) ** 2).sum() for n, a in self.anchor.items())
    ...     def end_task(self, model, task, data):
    ...         self.anchor = {n: p.detach().clone() for n, p in model.named_parameters()}
    ...     def narrowed(self):
    ...         return narrowed_tables(self, ["anchor"])
    """
    keeper = Tables(whole, tables, moving, plain)
    return Narrowed(keeper.twin, keeper)


class Tables:
    """Cuts the tables of a method for its twin, and puts back those that move.

    Args:
        whole, tables, moving, plain: as in `narrowed_tables`.
    """

    def __init__(
        self, whole: Method, tables: Sequence[str], moving: Sequence[str], plain: Sequence[str]
    ) -> None:
        self.whole, self.twin = whole, copy(whole)
        self.tables, self.moving, self.plain = tables, moving, plain

    def take(self, cut: Cut, network: nn.Module) -> None:
        """Prepare the twin and cut the tables for it."""
        self.cut = cut
        self.adopt: Adopt | None = self.twin.prepare(network)
        self.renew()

    def follow(self, optimizer: Optimizer) -> None:
        """Let the twin follow it."""
        if self.adopt is not None:
            self.adopt(optimizer)

    def renew(self) -> None:
        """Cut all tables anew."""
        for table in self.tables:
            whole: dict[str, Tensor] = getattr(self.whole, table)
            setattr(self.twin, table, {n: self.cut.take(n, t) for n, t in whole.items()})
        for name in self.plain:
            setattr(self.twin, name, getattr(self.whole, name))

    @torch.no_grad()
    def put_back(self) -> None:
        """Write the tables that move back into the whole ones."""
        for table in self.moving:
            whole: dict[str, Tensor] = getattr(self.whole, table)
            for name, part in getattr(self.twin, table).items():
                self.cut.put(name, whole[name], part)
        for name in self.plain:
            setattr(self.whole, name, getattr(self.twin, name))
