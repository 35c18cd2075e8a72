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
        evaluate: after each task measure all tasks so far, only at the last, or after every n-th.
        curves: also measure the task being learned every so many steps.
        part: measure on test data, or on validation data to choose settings.
    """

    evaluate: Count | Literal["all", "last"] = "all"
    curves: Count | None = None
    part: Literal["test", "validation"] = "test"
