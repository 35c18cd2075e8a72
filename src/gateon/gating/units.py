"""From an activity of any shape to numbers per sample and unit, in float32 at least."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = [
    "HALF",
    "activity",
    "as_samples",
    "at_least_float32",
    "contributions",
    "over_positions",
    "pieces",
    "wide",
]

BLOCK = 1 << 18  # numbers: what fits in a cache
HALF = (torch.float16, torch.bfloat16)


def contributions(gradient: Tensor, x: Tensor, unit_dim: int = -1, batch_dim: int = 0) -> Tensor:
    """The sum of dL/dx * x over positions, (samples, units): what each unit adds to the loss.

    To first order it is the change of the loss when the unit is removed: L - L(x_i = 0).

    >>> contributions(torch.ones(2, 3, 4, 4), torch.ones(2, 3, 4, 4), unit_dim=1)
    tensor([[16., 16., 16.],
            [16., 16., 16.]])
    """
    return over_positions(wide(gradient) * wide(x), unit_dim, batch_dim, mean=False)


def activity(x: Tensor, unit_dim: int = -1, batch_dim: int = 0) -> Tensor:
    """mu_i = x_i^2, averaged over positions and samples (eqs. bio-relevance, availabilty_conv).

    >>> activity(torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
    tensor([5., 2.])
    """
    return over_positions(wide(x).square(), unit_dim, batch_dim, mean=True).mean(0)


def over_positions(values: Tensor, unit_dim: int, batch_dim: int, *, mean: bool) -> Tensor:
    """Values as (samples, units); a sample without a batch dimension is a batch of one."""
    unit, batch = unit_dim % values.dim(), batch_dim % values.dim()
    positions = [d for d in range(values.dim()) if d not in (unit, batch)]
    if positions:
        values = values.mean(positions) if mean else values.sum(positions)
    if unit == batch:
        return values.unsqueeze(0)
    return values if batch < unit else values.T


def as_samples(values: Tensor, unit_dim: int, batch_dim: int) -> Tensor:
    """An activity of any shape as (samples, units, positions).

    >>> as_samples(torch.ones(2, 3, 4, 5), 1, 0).shape, as_samples(torch.ones(2, 3), 1, 0).shape
    (torch.Size([2, 3, 20]), torch.Size([2, 3, 1]))
    """
    unit, batch = unit_dim % values.dim(), batch_dim % values.dim()
    if unit == batch:  # a lone sample without a batch dimension
        return (
            wide(values).movedim(unit, 0).unsqueeze(0).flatten(2)
            if values.dim() > 1
            else wide(values)[None, :, None]
        )
    return (
        wide(values)
        .movedim((batch, unit), (0, 1))
        .reshape(values.shape[batch], values.shape[unit], -1)
    )


def pieces(
    gradient: Tensor, x: Tensor, unit_dim: int, batch_dim: int
) -> Iterable[tuple[Tensor, Tensor]]:
    """A few samples of a large activity at a time, so that their product stays in the cache.

    >>> len(list(pieces(torch.ones(4, 100_000), torch.ones(4, 100_000), 1, 0)))
    2
    """
    if batch_dim == unit_dim or torch.compiler.is_compiling() or x.numel() <= BLOCK:
        return [(gradient, x)]
    some = max(1, BLOCK * x.shape[batch_dim] // x.numel())
    return zip(gradient.split(some, batch_dim), x.split(some, batch_dim), strict=True)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The dtype of relevance and availability: half precision overflows when squared."""
    return torch.float32 if dtype in HALF else dtype


def wide(x: Tensor) -> Tensor:
    """In float32 if it is in half precision, whose range squares of gradients leave."""
    return x.float() if x.dtype in HALF else x
