"""Optimizers and gates that grow: what an optimizer remembers of a gate gets one row per context.

An optimizer holds moments of the shape its parameters had. A fused one would read beyond them, so
every optimizer is checked before its step, whether `obstruct` follows it or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

__all__ = ["grow_memory", "mark_grown", "pad_gradient"]

# Rprop's and Adagrad's memory; any other starts at 0.
STARTS_AT = {"step_size": "lr", "sum": "initial_accumulator_value"}
GROWN = "context_rows"  # attribute of a gate's weight that has grown


def mark_grown(weight: nn.Parameter) -> None:
    """Let every optimizer follow the growth of a gate's weight at its next step."""
    setattr(weight, GROWN, len(weight))


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


register_optimizer_step_pre_hook(_follow_growth)
