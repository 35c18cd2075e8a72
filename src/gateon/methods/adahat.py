"""AdaHAT: HAT that slows used weights down instead of freezing them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import Adopt
from .hat import HAT

__all__ = ["AdaHAT"]


@dataclass
class AdaHAT(HAT):
    """Adaptive hard attention to the task.

    Masks, regulariser and embeddings are HAT's. Importance is the sum of the masks of all past
    tasks, and the update of w_ij is scaled by r / (min(importance_i, importance_j) + r), r = alpha
    / (epsilon + R), with R = sum a (1 - a_cum) / sum (1 - a_cum) of the layer at this step: the
    more of its free units a layer takes, the less its used weights may move. What no task has used
    moves freely. A head that all tasks share has no mask; its R is 0 and the importance of its
    units is the number of tasks.

    Wang, Pham and others, "AdaHAT: Adaptive hard attention to the task in task-incremental
    learning", ECML PKDD 2024.

    Args:
        alpha: how far used weights may move.
        epsilon: keeps r finite.

    >>> AdaHAT().name
    'adahat'
    """

    name = "adahat"

    alpha: float = 1e-6
    epsilon: float = 0.1

    def prepare(self, model: nn.Module) -> Adopt:
        """Put masks behind the hidden layers."""
        if self.alpha <= 0 or self.epsilon <= 0:
            raise ValueError(
                f"alpha and epsilon must be positive, got {self.alpha} and {self.epsilon}."
            )
        return super().prepare(model)

    @torch.no_grad()
    def factors(self) -> dict[nn.Parameter, Tensor]:
        """r / (importance + r), with the r of this step."""
        importance = super().factors()
        r = {name: self.alpha / (self.epsilon + mask.used()) for name, mask in self.masks.items()}
        shared = torch.tensor(self.alpha / self.epsilon)
        return {
            o.parameter: _rate(r.get(o.site, shared), importance[o.parameter])
            for o in self._owned
            if importance
        }

    def derived(self) -> dict[nn.Parameter, Tensor]:
        """The importance of every parameter for the tasks that are over."""
        return {
            o.parameter: self._at_both_ends(o, "importance", float(self.tasks)) for o in self._owned
        }


def _rate(r: Tensor, importance: Tensor) -> Tensor:
    return r / (importance + r)
