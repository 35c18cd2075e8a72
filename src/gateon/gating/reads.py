"""A gate in front of several readers, which read different sums of the same units.

What a unit adds to the loss is then the sum over all that reads it, and is squared only once the
backward pass has come through every reader. So the gains of a pass are one tensor with a row for
each sample: autograd adds up what the readers say of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from . import units

if TYPE_CHECKING:
    from .gate import Gate

__all__ = ["Read", "each_sample", "product"]


class Read(nn.Module):
    """A further reader of the units of a gate: what it reads is multiplied by the same gains.

    Args:
        gate: in front of the first reader.
        dim: the dimension that counts units in what this one reads.
    """

    def __init__(self, gate: Gate, dim: int) -> None:
        super().__init__()
        self.gate, self.dim = (gate,), dim  # in a tuple, which registers no submodule
        self.fired = False

    def forward(self, x: Tensor) -> Tensor:
        """x times the active gains of the gate."""
        if not torch.compiler.is_compiling():
            self.fired = True
        return self.gate[0].multiply(x, self.dim, flattened=True)


def each_sample(gain: Tensor, tap: Tensor, samples: int) -> Tensor:
    """The gains of a pass, (samples, units); the gradient of `tap` is their relevance.

    mu_i = sum over samples of (sum over readers r and positions of dL/dx_ri x_ri)^2.

    Args:
        gain: of one context, (1, units), or of that of each sample.
        tap: a leaf, (units,).
        samples: in the batch.
    """
    rows: Tensor = _EachSample.apply(gain, tap, samples)  # type: ignore[no-untyped-call]
    return rows


def product(x: Tensor, rows: Tensor, dim: int, batch: int) -> Tensor:
    """x times the gains of each sample, whose gradient is exact in half precision too."""
    multiplied: Tensor = _Product.apply(x, rows, dim, batch)  # type: ignore[no-untyped-call]
    return multiplied


class _EachSample(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gain: Tensor, tap: Tensor, samples: int) -> Tensor:
        ctx.save_for_backward(gain)
        return units.wide(gain).repeat(samples if len(gain) == 1 else 1, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (gain,) = ctx.saved_tensors
        observed = (gradient * gain).square_().sum(0) if ctx.needs_input_grad[1] else None
        to_gain = gradient.sum(0, keepdim=True) if len(gain) == 1 else gradient
        return to_gain.to(gain.dtype) if ctx.needs_input_grad[0] else None, observed, None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, dim: int, batch: int) -> Tensor:
        ctx.save_for_backward(x, rows)
        ctx.dim, ctx.batch = dim, batch
        return x * _along(rows, x, dim, batch)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, rows = ctx.saved_tensors
        dim, batch = ctx.dim, ctx.batch
        to_x = gradient * _along(rows, x, dim, batch) if ctx.needs_input_grad[0] else None
        pieces = units.pieces(gradient, x, dim, batch)
        to_rows = torch.cat([units.contributions(g, h, dim, batch) for g, h in pieces])
        return to_x, to_rows, None, None


def _along(rows: Tensor, x: Tensor, dim: int, batch: int) -> Tensor:
    """Gains, (samples, units), shaped to multiply x."""
    shape = [1] * x.dim()
    shape[batch], shape[dim] = rows.shape if batch != dim else (1, rows.shape[1])
    return (rows if batch <= dim else rows.T).reshape(shape).to(x.dtype)
