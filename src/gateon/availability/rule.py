"""Availability A: how freely a unit or a parameter may still change, and the one rule that moves it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Rate", "Rule", "recovery_time", "room", "saturation", "update"]

Rate = float | tuple[float, float]  # eta_A, or one for falling and one for rising


@dataclass(frozen=True)
class Rule:
    """A <- clip(A (1 - rate (mu - epsilon)), floor, 1), in place (eq. availabilty).

    Everything that moves an availability calls this: change it here, and it is changed everywhere.

    Args:
        fall: eta_A where relevance is above epsilon.
        rise: eta_A where it is below.
        epsilon: Relevance below it unfreezes; with 0 nothing ever does.
        floor: Least availability; 0 in the paper, where an A that was clipped to 0 stays there.
        own: Instead of the equation, a function of A and mu that returns the new A. It must treat
            each number alone: units left out of a sub-network have mu = 0.

    >>> A = torch.ones(3)
    >>> Rule(fall=0.1, rise=0.1)(A, torch.tensor([0.0, 1.0, 2.0]))
    >>> A
    tensor([1.0000, 0.9000, 0.8000])
    """

    fall: float
    rise: float
    epsilon: float = 0.0
    floor: float = 0.0
    own: Callable[[Tensor, Tensor], Tensor] | None = None

    @property
    def is_still(self) -> bool:
        """Whether it moves nothing, whatever the relevance."""
        return self.own is None and self.fall == 0 and (self.rise == 0 or self.epsilon == 0)

    def __call__(self, A: Tensor, mu: Tensor, scale: float = 1.0) -> None:
        """Move A by relevances whose normalised values are `scale * mu`."""
        if self.own is not None:
            A.copy_(self.own(A, mu * scale).clamp_(0, 1))
        elif self.fall == self.rise:
            growth = 1 + self.fall * self.epsilon
            if growth != 1:
                A.mul_(growth)
            A.addcmul_(A, mu, value=-self.fall * scale / growth).clamp_(self.floor, 1)
        else:
            above = mu * scale - self.epsilon
            A.mul_(1 - torch.where(above > 0, self.fall, self.rise) * above).clamp_(self.floor, 1)

    def idle(self, A: Tensor, steps: int) -> None:
        """Move A by so many steps without any relevance: A <- min(A (1 + rise epsilon)^steps, 1)."""
        if self.own is not None:
            for _ in range(steps):
                self(A, torch.zeros_like(A))
        elif self.rise * self.epsilon:
            growth, most = 1 + self.rise * self.epsilon, torch.finfo(A.dtype).max
            # Beyond that it would be infinite, and what is 0 would become NaN.
            A.mul_(growth**steps if steps * math.log(growth) < math.log(most) else most).clamp_(
                self.floor, 1
            )


def update(A: Tensor, mu: Tensor, rate: Rate, epsilon: float = 0.0, floor: float = 0.0) -> Tensor:
    """A <- clip(A (1 - rate (mu - epsilon)), floor, 1) (eq. availabilty), as a new tensor.

    A relevance that is not finite, or zero everywhere, says nothing: A stays as it was.

    Args:
        A: Availabilities.
        mu: Relevances, normalised to mean one.
        rate: eta_A, how fast relevance freezes; or a pair, for falling and for rising.
        epsilon: Relevance below it unfreezes; with 0 nothing ever does.
        floor: Least availability.

    >>> update(torch.ones(3), torch.tensor([0.0, 1.0, 2.0]), rate=0.1)
    tensor([1.0000, 0.9000, 0.8000])
    >>> update(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 2.0]), rate=0.1, epsilon=0.5)
    tensor([0.5250, 0.4250])
    """
    moved = A.clone()
    fall, rise = rate if isinstance(rate, tuple) else (rate, rate)
    Rule(fall, rise, epsilon, floor)(moved, mu)
    says_something = torch.isfinite(mu).all() & (mu > 0).any()
    return torch.where(says_something, moved, A)


def recovery_time(
    steps: float, relevant: float, irrelevant: float, rate: float, epsilon: float
) -> float:
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
