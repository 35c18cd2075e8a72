"""The section [measuring] of a specification: what is measured, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..options.kinds import Count

__all__ = ["Measuring"]


@dataclass(frozen=True)
class Measuring:
    """What is measured.

    Args:
        evaluate: when to measure all tasks so far: after each task, after the last only, or after
            every n-th.
        curves: number of steps after which the current task is measured too.
        part: measure on test data, or on validation data to choose settings.
    """

    evaluate: Count | Literal["all", "last"] = "all"
    curves: Count | None = None
    part: Literal["test", "validation"] = "test"
