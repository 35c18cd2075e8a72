"""Optimizers and gates that grow, or whose rows are kept elsewhere.

An optimizer holds moments of the shape its parameters had. A fused one would read beyond them, so
every optimizer is checked before its step, whether `obstruct` follows it or not: what it remembers
of a gate gets one row per context. Of a gate with one row at work, gradient and memory must be of
the context whose row that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..anatomy.rows import Rows

__all__ = ["grow_memory", "mark_grown", "mark_kept", "note_backward", "pad_gradient"]

# Rprop's and Adagrad's memory; any other starts at 0.
STARTS_AT = {"step_size": "lr", "sum": "initial_accumulator_value"}
# Attributes of a gate's weight: that has grown, or has one row at work.
GROWN, KEPT = "context_rows", "kept_rows"


def mark_grown(weight: nn.Parameter) -> None:
    """Let every optimizer follow the growth of a gate's weight at its next step."""
    setattr(weight, GROWN, len(weight))


def mark_kept(weight: nn.Parameter, rows: Rows | None) -> None:
    """Let every optimizer check that it learns the context whose row is at work; None: no longer."""
    setattr(weight, KEPT, rows)


def note_backward(weight: nn.Parameter, gain: Tensor, rows: Rows) -> None:
    """Note that the gradient of a gate will be of the context that is shown now."""
    if torch.compiler.is_compiling() or not gain.requires_grad or not weight.is_leaf:
        return
    context = rows.shown

    def note(_: Tensor) -> None:
        if weight.grad is None:
            rows.unused.clear()
        rows.unused.add(context)

    gain.register_hook(note)


def pad_gradient(weight: Tensor) -> None:
    """Give contexts added between forward and backward pass a gradient of zero."""
    assert weight.grad is not None
    missing = weight.shape[0] - weight.grad.shape[0]
    if missing > 0:
        weight.grad = torch.cat([weight.grad, weight.grad.new_zeros(missing, weight.shape[1])])


def grow_memory(memory: dict[str, Any], rows: int, group: Mapping[str, Any]) -> None:
    """Add new rows to whatever an optimizer remembers row by row, up to `rows`."""
    for key, value in memory.items():
        # Adafactor's col_var is one row for all contexts.
        by_row = isinstance(value, Tensor) and value.dim() == 2 and key != "col_var"
        if by_row and value.shape[0] < rows:
            start = float(group.get(STARTS_AT.get(key, ""), 0))
            new = torch.full_like(value[:1], start).repeat(rows - value.shape[0], 1)
            memory[key] = torch.cat([value, new])


def _follow_growth(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if hasattr(weight, GROWN):
                grow_memory(optimizer.state.get(weight, {}), weight.shape[0], group)
                if weight.grad is not None:
                    pad_gradient(weight)
            rows: Rows | None = getattr(weight, KEPT, None)
            if rows is not None and weight.grad is not None:
                _check_context(rows, remembers=bool(optimizer.state.get(weight)))


def _check_context(rows: Rows, *, remembers: bool) -> None:
    """Refuse a step with the gradient or the memory of another context than that at work."""
    if rows.unused - {rows.shown}:
        raise ValueError(
            f"Context {rows.shown} has its gates on the device, but the gradient is of "
            f"{sorted(rows.unused - {rows.shown})} too: step, or zero_grad(), before a switch, or "
            'keep_rows("device").'
        )
    if remembers and rows.learned not in (None, rows.shown):
        raise ValueError(
            f"Context {rows.shown} has its gates on the device, but the optimizer remembers those "
            'of another: build a new one after a switch, or keep_rows("device").'
        )
    rows.learned = rows.shown
    rows.unused.clear()


register_optimizer_step_pre_hook(_follow_growth)
