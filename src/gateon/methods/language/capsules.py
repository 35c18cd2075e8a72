"""Capsules: what every task sees in a hidden state, and how it votes for what tasks share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...anatomy.contextual import Contextual
from ..shared.samples import seeded

__all__ = ["TaskCapsules", "routed", "squash"]


def squash(u: Tensor) -> Tensor:
    """|u|^2 / (1 + |u|^2) u / |u| along the last dimension: a length below one.

    >>> squash(torch.tensor([3.0, 4.0]))
    tensor([0.5769, 0.7692])
    """
    square = u.square().sum(-1, keepdim=True)
    return u * square / (1 + square) / (square + torch.finfo(u.dtype).tiny).sqrt()


def routed(votes: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """Routing by agreement: s_j = sum_i c_ij u_ij, and c.

    Votes u are (..., tasks i, capsules j, size), c is (..., i, j).

    c_ij = softmax_i(b_ij), and after each round but the last b_ij <- b_ij + u_ij . squash(s_j),
    from b = 0.

    >>> s, c = routed(torch.ones(5, 2, 3, 4), 3)
    >>> s.shape, c[0, :, 0]
    (torch.Size([5, 3, 4]), tensor([0.5000, 0.5000]))
    """
    b = votes.new_zeros(votes.shape[:-1])
    for left in reversed(range(rounds)):
        c = b.softmax(-2)
        s = (c[..., None] * votes).sum(-3)
        if left:
            b = b + (votes * squash(s)[..., None, :, :]).sum(-1)
    return s, c


class TaskCapsules(Contextual):
    """The capsule p_i = squash(A_i x + a_i) of every task i, and its votes u_ij = W_ij p_i.

    There is a vote for each semantic capsule j. A task asks its own capsule and those of tasks
    before it, never a later one. Tasks are ordered by their contexts.

    Args:
        units: of the hidden state x.
        capsules: how many semantic capsules.
        size: of every capsule.
        seed: A is drawn from N(0, 0.02^2), a is 0, W from N(0, 1).

    >>> capsules = TaskCapsules(8, 3, 3, (0, 0))
    >>> capsules.add_context(); capsules.show(1)
    >>> capsules(torch.ones(2, 5, 8)).shape
    torch.Size([2, 5, 2, 3, 3])
    """

    def __init__(self, units: int, capsules: int, size: int, seed: tuple[int, int]) -> None:
        super().__init__()
        self.units, self.capsules, self.size, self.seed = units, capsules, size, seed
        self.maps, self.shifts, self.routes = (
            nn.ParameterList(),
            nn.ParameterList(),
            nn.ParameterList(),
        )
        self.add_context()

    @property
    def contexts(self) -> int:
        """How many tasks have a capsule."""
        return len(self.maps)

    def add_context(self) -> None:
        """One more capsule, which does not depend on how many there are."""
        generator = seeded(*self.seed, self.contexts, 2)
        like = self.maps[0] if self.contexts else torch.zeros(())
        new = (
            torch.randn(self.size, self.units, generator=generator) * 0.02,
            torch.zeros(self.size),
            torch.randn(self.capsules, self.size, self.size, generator=generator),
        )
        for parameters, values in zip((self.maps, self.shifts, self.routes), new, strict=True):
            parameters.append(nn.Parameter(values.to(like)))

    def forward(self, x: Tensor) -> Tensor:
        """The votes of all tasks up to the active one, (..., tasks, capsules, size)."""
        known = self.context + 1
        maps, shifts, routes = (
            torch.stack(list(p)[:known]) for p in (self.maps, self.shifts, self.routes)
        )
        p = squash(torch.einsum("...d,isd->...is", x, maps) + shifts)
        return torch.einsum("...is,ijsc->...ijc", p, routes)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        while f"{prefix}maps.{self.contexts}" in state:
            self.add_context()
        super()._load_from_state_dict(state, prefix, *rest)
