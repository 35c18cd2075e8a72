"""What a detector knows about the losses of each context, and what it says about a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["LossBook", "Probe", "Verdict", "as_number"]

# The losses of the current batch under the contexts it is given.
Probe = Callable[[Sequence[int]], Sequence[float]]


@dataclass(frozen=True)
class Verdict:
    """What the detector concludes from one batch.

    Args:
        context: The context the batch belongs to.
        switched: Whether that differs from the previous context.
        new: Whether it is a new context.
        suspected: Whether the batch seems to belong to another task, but this is not settled yet.
        dismissed: Whether an alarm was false: the active context still fits.
    """

    context: int
    switched: bool = False
    new: bool = False
    suspected: bool = False
    dismissed: bool = False


@dataclass
class LossBook:
    """What is known about the losses of one context.

    Args:
        running: Their running average.
        deviation: The running average of twice the rise from one loss to the next.
        first: The first loss.
        last: The last loss.
        losses: How many there were.
        confidence: The confidence in the context.
    """

    running: float = math.nan
    deviation: float = 0.0
    first: float = math.nan
    last: float = math.nan
    losses: int = 0
    confidence: float = 0.0


def as_number(loss: Any) -> float:
    """A loss from Python, numpy or torch as a float; NaN for anything else.

    >>> as_number(2), as_number("2")
    (2.0, nan)
    """
    try:
        return math.nan if isinstance(loss, str) else float(loss)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return math.nan
