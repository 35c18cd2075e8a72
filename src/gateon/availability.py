"""Availability A: how freely a unit or a parameter may still change. Pure functions of tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["recovery_time", "room", "saturation", "update"]


def update(A: Tensor, mu: Tensor, rate: float, epsilon: float = 0.0, floor: float = 0.0) -> Tensor:
    """A <- clip(A (1 - rate (mu - epsilon)), floor, 1) (eq. availabilty).

    A relevance that is not finite, or zero everywhere, says nothing: A stays as it was.

    Args:
        A: availabilities.
        mu: relevances, normalised to mean one.
        rate: eta_A, how fast relevance freezes.
        epsilon: relevance below it unfreezes; with 0 nothing ever does.
        floor: least availability; 0 in the paper, where an A that was clipped to exactly 0 stays there.

    >>> update(torch.ones(3), torch.tensor([0.0, 1.0, 2.0]), rate=0.1)
    tensor([1.0000, 0.9000, 0.8000])
    >>> update(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 2.0]), rate=0.1, epsilon=0.5)
    tensor([0.5250, 0.4250])
    """
    moved = (A * (1 - rate * (mu - epsilon))).clamp(floor, 1)
    says_something = torch.isfinite(mu).all() & (mu > 0).any()
    return torch.where(says_something, moved, A)


def recovery_time(steps: float, relevant: float, irrelevant: float, rate: float, epsilon: float) -> float:
    """T* = -T log(1 - rate (a - epsilon)) / log(1 - rate (b - epsilon)): steps until A is back (supplement, eq. tprime).

    Args:
        steps: T, for how long the unit was relevant.
        relevant: a > epsilon, its relevance then.
        irrelevant: b < epsilon, its relevance afterwards.
        rate: eta_A.
        epsilon: the threshold between freezing and unfreezing.

    Infinite where A was driven to 0, or where nothing unfreezes.

    >>> round(recovery_time(100, relevant=3.0, irrelevant=0.0, rate=0.01, epsilon=1.0))
    203
    """
    if not irrelevant <= epsilon <= relevant:
        raise ValueError(
            f"The unit must be relevant first (a >= epsilon) and irrelevant then (b <= epsilon), not {relevant}, {irrelevant}."
        )
    falling, rising = 1 - rate * (relevant - epsilon), 1 - rate * (irrelevant - epsilon)
    if falling == 1:
        return 0.0
    return -steps * math.log(falling) / math.log(rising) if falling > 0 and rising > 1 else math.inf


def saturation(A: Tensor, threshold: float = 0.05) -> float:
    """The share of units or parameters whose availability is below the threshold: 1 is a full layer.

    >>> saturation(torch.tensor([0.01, 0.2, 0.9, 1.0]))
    0.25
    """
    return (threshold > A).float().mean().item()


def room(A: Tensor) -> float:
    """The room that is left: mean availability.

    >>> room(torch.tensor([0.0, 1.0]))
    0.5
    """
    return A.mean().item()
