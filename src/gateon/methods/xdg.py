"""XdG, context-dependent gating: a fixed random part of the hidden units for every task."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..gating.attach import attach
from ..gating.gates import Gates
from .base import Method, Narrowed

__all__ = ["XdG"]

OPEN = math.nextafter(1, 0)  # the gain at which open gates start: in float32 it is exactly 1


@dataclass
class XdG(Method):
    """Multiplies hidden unit i by g_ik in task k: 1 for some of the units, 0 for the others.

    Which ones is drawn at random and never learned.

    Masse, Grant and Freedman, "Alleviating catastrophic forgetting using context-dependent gating
    and synaptic stabilization", PNAS 2018. Meant to be combined with a method that slows weights
    down: `Both(XdG(), SI())`.

    Args:
        off: share of the hidden units that are off in each task.
        example: one batch of input, for models whose layers cannot be followed without data.
        seed: of the random gates.

    >>> model = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 2))
    >>> method = XdG()
    >>> method.prepare(model)
    >>> method.gates.gain(0)["0"].unique(), int(method.gates.gain(0)["0"].sum())
    (tensor([0., 1.]), 2)
    """

    name = "xdg"
    label_at_test = True

    off: float = 0.8
    example: Any = field(default=None, repr=False)
    seed: int = 0

    gates: Gates | None = field(default=None, init=False, repr=False, compare=False)

    def prepare(self, model: nn.Module) -> None:
        """Attach gates that stay open or shut; the learner adds those of a new task."""
        if not 0 <= self.off < 1:
            raise ValueError(f"off must be at least 0 and below 1, got {self.off}.")
        self.gates = attach(
            model, density=1 - self.off, start=OPEN, example=self.example, seed=self.seed
        )
        for gate in self.gates.gates.values():
            gate.requires_grad_(False)

    def narrowed(self) -> Narrowed:
        """Has no per-parameter state."""
        return Narrowed(self)
