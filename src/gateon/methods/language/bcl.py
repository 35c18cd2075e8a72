"""B-CL: adapters whose tasks share knowledge through capsules, routed by agreement."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from ..base import Adopt
from .adapters import HatAdapters, started
from .capsules import TaskCapsules, routed

__all__ = ["BCL", "AgreementRouting"]


class AgreementRouting(nn.Module):
    """E (s_1, ..., s_J): what the capsules of the tasks so far agree on, for all units.

    Args:
        units: of the place.
        capsules: how many semantic capsules.
        size: units of each capsule.
        rounds: rounds of routing.
        seed: of its weights.

    >>> import torch
    >>> AgreementRouting(8, 3, 3, 3, (0, 0))(torch.ones(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self, units: int, capsules: int, size: int, rounds: int, seed: tuple[int, int]
    ) -> None:
        super().__init__()
        self.rounds = rounds
        self.capsules = TaskCapsules(units, capsules, size, seed)
        self.expand = nn.Linear(capsules * size, units)
        started(self.expand, (*seed, 0, 3))

    def forward(self, x: Tensor) -> Tensor:
        """For every token on its own."""
        shared: Tensor = self.expand(routed(self.capsules(x), self.rounds)[0].flatten(-2))
        return shared


@dataclass
class BCL(HatAdapters):
    """BERT-based continual learning with capsules.

    Every adapter is x + h(x + k(x)). h is the task's own part, two layers with the masks of HAT. k
    is the part that shares knowledge: task i sees the token x as a capsule p_i = squash(A_i x +
    a_i) and votes u_ij = W_ij p_i; the capsules of the tasks up to the active one, i <= k, are
    joined by agreement, s_j = sum_i c_ij u_ij with c_ij = softmax_i(b_ij) and b_ij growing by u_ij
    . squash(s_j) in every round; a layer E with a mask of HAT expands (s_1, ..., s_J). Capsules
    stay plastic.

    Ke, Xu and Liu, "Adapting BERT for continual learning of a sequence of aspect sentiment
    classification tasks", NAACL 2021. Routing is done for each token, so that texts may be of any
    length; the authors' code mixes the tokens of a fixed length in W.

    Args:
        capsules: J, the number of semantic capsules.
        size: units of each capsule.
        rounds: rounds of routing.

    >>> BCL(width=64).name
    'bcl'
    """

    name = "bcl"

    capsules: int = 3
    size: int = 3
    rounds: int = 3

    def prepare(self, model: nn.Module) -> Adopt:
        """Freeze the encoder, put adapters with capsules in, and masks behind their layers."""
        if min(self.capsules, self.size, self.rounds) < 1:
            raise ValueError(
                "B-CL needs at least one capsule, of at least size 1, and one round of routing."
            )
        return super().prepare(model)

    def _shared(self, units: int, seed: tuple[int, int]) -> nn.Module:
        return AgreementRouting(units, self.capsules, self.size, self.rounds, seed)
