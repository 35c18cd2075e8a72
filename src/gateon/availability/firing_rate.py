"""Relevance from firing rates, as the paper's Discussion proposes to measure it in real neurons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["FiringRate", "activity_and_count", "firing_rate_of"]


@dataclass(frozen=True)
class FiringRate:
    """mu_i = r_i^2, where the firing rate r_i follows the activity through a low-pass filter.

    r_i(t) = r_i(t - 1) + (|x_i(t)| - r_i(t - 1)) / steps, from r_i = 0 (Discussion; eq. mu8)

    |x_i(t)| is the mean size of the activity over the samples of a step and over positions; like
    any relevance, mu is divided by its mean over the layer. No gradient is needed. The rates stay
    over switches of context and are part of the state of an obstruction.

    Args:
        steps: the time constant of the filter. The paper estimates a second: how many steps that
            is depends on what a step stands for. With 1 there is no filter.

    >>> filter = FiringRate(steps=4)
    >>> rates = filter.follow(torch.zeros(2), torch.tensor([8.0, 0.0]))
    >>> rates, filter.follow(rates, torch.tensor([0.0, 8.0]))
    (tensor([2., 0.]), tensor([1.5000, 2.0000]))
    """

    steps: float = 20.0

    def __post_init__(self) -> None:
        """Validate the time constant."""
        if not 1 <= self.steps < float("inf"):
            raise ValueError(f"FiringRate: steps must be at least 1 and finite, got {self.steps}.")

    def follow(self, rates: Tensor, activity: Tensor) -> Tensor:
        """The rates after one more step with an activity."""
        return rates + (activity - rates) / self.steps


def firing_rate_of(relevance: Any) -> FiringRate | None:
    """The filter that a setting `relevance` asks for, if any.

    >>> firing_rate_of("firing-rate"), firing_rate_of("activity")
    (FiringRate(steps=20.0), None)
    """
    if isinstance(relevance, FiringRate):
        return relevance
    return FiringRate() if relevance == "firing-rate" else None


def activity_and_count(gradient: Tensor, x: Tensor) -> Tensor:
    """|x| of every unit, averaged over positions and summed over samples; then their number.

    Sums, so that batches may come in parts and from several processes.

    Args:
        gradient: dL/dx, which does not matter.
        x: the activity, (samples, units, positions).

    >>> activity_and_count(torch.ones(2, 1, 2), torch.tensor([[[1.0, -3.0]], [[0.0, 2.0]]]))
    tensor([3., 2.])
    """
    return torch.cat([x.abs().mean(2).sum(0), x.new_full((1,), len(x))])
