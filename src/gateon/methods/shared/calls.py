"""How methods and learners call a model: on its device, for its logits, in evaluation mode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from ...anatomy.wiring import evaluating
from ...gating.gate import Gate

__all__ = [
    "check_seed",
    "check_strength",
    "evaluating",
    "logits",
    "moved",
    "outputs",
    "trainable",
]


def moved(x: Any, model: nn.Module) -> Any:
    """Inputs on the device of a model: one tensor, or several by name."""
    device = next(model.parameters()).device
    if isinstance(x, Mapping):
        return {name: value.to(device) for name, value in x.items()}
    return x.to(device)


def logits(model: nn.Module, x: Any, state: Mapping[str, Tensor] | None = None) -> Tensor:
    """What a model computes for inputs on its device: its outputs, or the logits among them.

    Args:
        model: what is called.
        x: one tensor, or several by name.
        state: parameters and buffers to use in place of the model's own.

    >>> import torch
    >>> logits(nn.Linear(3, 2), torch.zeros(4, 3)).shape
    torch.Size([4, 2])
    """
    args, named = ((), dict(x)) if isinstance(x, Mapping) else ((x,), {})
    output = (
        model(*args, **named) if state is None else functional_call(model, dict(state), args, named)
    )
    found: Tensor = getattr(output, "logits", output)
    return found


def outputs(model: nn.Module, x: Any) -> Tensor:
    """The logits of a model in float32, for inputs on any device.

    >>> import torch
    >>> outputs(nn.Linear(3, 2), torch.zeros(4, 3)).shape
    torch.Size([4, 2])
    """
    return logits(model, moved(x, model)).float()


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters a method looks after, by name.

    Gates are not among them: every context has its own row, and moves no other's.

    >>> list(trainable(nn.Linear(3, 2)))
    ['weight', 'bias']
    """
    own = {id(gate.weight) for gate in model.modules() if isinstance(gate, Gate)}
    return {name: p for name, p in model.named_parameters() if p.requires_grad and id(p) not in own}


def check_seed(seed: int) -> None:
    """Check that a seed is a whole number of at least 0.

    >>> check_seed(-1)
    Traceback (most recent call last):
    ...
    ValueError: seed must be a whole number of at least 0, got -1.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}.")


def check_strength(name: str, value: float) -> None:
    """Check that a number is finite and not negative.

    >>> check_strength("strength", -1.0)
    Traceback (most recent call last):
    ...
    ValueError: strength must be a finite number of at least 0, got -1.0.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value < 0
    ):
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}.")
