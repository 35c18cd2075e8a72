"""Errors in the middle of a run, in words that say what to do."""

from __future__ import annotations

from pathlib import Path

import torch

from ..storage.files import printable
from .state import Position

__all__ = ["explained", "is_out_of_memory"]


def explained(reason: Exception, at: Position, resumed: Path | None) -> Exception | None:
    """An error that says more than the one that was raised; None if that says enough.

    Args:
        reason: the one that was raised.
        at: where the run was.
        resumed: the checkpoint resumed from, if no step was made since.
    """
    if is_out_of_memory(reason):  # in the middle of a step, which must not be saved
        return MemoryError(
            f"Memory ran out after step {at.step} of task {at.task + 1}; checkpoints "
            "written before are whole. Free memory and give the same command to go on, or "
            "begin a run with a smaller batch or network elsewhere."
        )
    if resumed is not None and isinstance(
        reason, ArithmeticError | RuntimeError | LookupError | TypeError | AttributeError
    ):
        # Nothing was learned since: what fits in kind may still hold numbers that lead nowhere.
        kind = FloatingPointError if isinstance(reason, FloatingPointError) else ValueError
        told = printable(reason).rstrip(".")
        return kind(f"{resumed} cannot be resumed from ({told}): delete it to start anew.")
    return None


def is_out_of_memory(reason: BaseException) -> bool:
    """Whether an error says that memory ran out; torch has no class for it on every device."""
    known = isinstance(reason, MemoryError | torch.OutOfMemoryError)
    return known or "allocate memory" in str(reason)
