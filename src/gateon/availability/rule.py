"""Availability A: how freely a unit or parameter may still change, and the rule that moves it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Rate", "Rule", "recovery_time", "room", "saturation", "update"]

# eta_A, or a pair for falling and rising; or it follows from the room left.
Rate = float | tuple[float, float] | Literal["room"]


@dataclass(frozen=True)
class Rule:
    """A <- clip(A (1 - rate (mu - epsilon)), floor, 1), in place (eq. availabilty).

    Everything that moves an availability calls this, so a change here applies everywhere.

    Args:
        fall: eta_A where relevance is above epsilon.
        rise: eta_A where it is below.
        epsilon: Relevance below it unfreezes; with 0 nothing ever unfreezes.
        floor: The smallest availability; 0 in the paper, where an A clipped to 0 stays 0.
        own: A function of A and mu that returns the new A, in place of the equation. It must be
            elementwise: units left out of a sub-network have mu = 0.

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
        """Whether it never moves anything."""
        return self.own is None and self.fall == 0 and (self.rise == 0 or self.epsilon == 0)

    def __call__(self, A: Tensor, mu: Tensor, scale: float = 1.0) -> None:
        """Move A in place.

        Args:
            A: Availabilities.
            mu: Relevances.
            scale: What normalises them: `scale * mu` has mean one.
        """
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
        """Move A by several steps without relevance: A <- min(A (1 + rise epsilon)^steps, 1)."""
        if self.own is not None:
            for _ in range(steps):
                self(A, torch.zeros_like(A))
        elif self.rise * self.epsilon:
            growth, largest = 1 + self.rise * self.epsilon, torch.finfo(A.dtype).max
            overflows = steps * math.log(growth) >= math.log(largest)  # 0 * infinity would be NaN
            A.mul_(largest if overflows else growth**steps).clamp_(self.floor, 1)


def update(
    A: Tensor,
    mu: Tensor,
    rate: float | tuple[float, float],
    epsilon: float = 0.0,
    floor: float = 0.0,
) -> Tensor:
    """A <- clip(A (1 - rate (mu - epsilon)), floor, 1) (eq. availabilty), as a new tensor.

    A relevance that is not finite, or zero everywhere, leaves A as it was.

    Args:
        A: Availabilities.
        mu: Relevances, normalised to mean one.
        rate: eta_A, how fast relevance freezes; or a pair for falling and rising.
        epsilon: Relevance below it unfreezes; with 0 nothing ever unfreezes.
        floor: The smallest availability.

    Returns:
        The new availabilities.

    >>> update(torch.ones(3), torch.tensor([0.0, 1.0, 2.0]), rate=0.1)
    tensor([1.0000, 0.9000, 0.8000])
    >>> update(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 2.0]), rate=0.1, epsilon=0.5)
    tensor([0.5250, 0.4250])
    """
    moved = A.clone()
    fall, rise = rate if isinstance(rate, tuple) else (rate, rate)
    Rule(fall, rise, epsilon, floor)(moved, mu)
    is_informative = torch.isfinite(mu).all() & (mu > 0).any()
    return torch.where(is_informative, moved, A)


def recovery_time(
    steps: float,
    relevant: float,
    irrelevant: float,
    rate: float | tuple[float, float],
    epsilon: float,
) -> float:
    """Steps until the availability of a unit has recovered (supplement, eq. tprime).

    T* = -T log(1 - fall (a - epsilon)) / log(1 - rise (b - epsilon)); in the paper both rates are
    eta_A.

    Args:
        steps: T, the number of steps for which the unit was relevant.
        relevant: a > epsilon, its relevance during those steps.
        irrelevant: b < epsilon, its relevance afterwards.
        rate: eta_A, or a pair for falling and rising.
        epsilon: The threshold between freezing and unfreezing.

    Returns:
        T*; infinite if A reached 0 or if nothing unfreezes.

    >>> round(recovery_time(100, relevant=3.0, irrelevant=0.0, rate=0.01, epsilon=1.0))
    203
    >>> round(recovery_time(100, 3.0, 0.0, rate=(0.01, 0.02), epsilon=1.0))
    102
    """
    fall, rise = rate if isinstance(rate, tuple) else (rate, rate)
    if not irrelevant <= epsilon <= relevant:
        raise ValueError(
            "The unit must be relevant first (a >= epsilon) and irrelevant afterwards "
            f"(b <= epsilon), got a = {relevant} and b = {irrelevant}."
        )
    falling, rising = 1 - fall * (relevant - epsilon), 1 - rise * (irrelevant - epsilon)
    if falling == 1:
        return 0.0
    return -steps * math.log(falling) / math.log(rising) if falling > 0 and rising > 1 else math.inf


def saturation(A: Tensor, threshold: float = 0.05) -> float:
    """The share of availabilities below the threshold: 1 means that the layer is full.

    >>> saturation(torch.tensor([0.01, 0.2, 0.9, 1.0]))
    0.25
    """
    return (threshold > A).float().mean().item()


def room(A: Tensor) -> float:
    """The room left: the mean availability.

    >>> room(torch.tensor([0.0, 1.0]))
    0.5
    """
    return A.mean().item()
