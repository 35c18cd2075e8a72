"""Relevance mu: how much the loss depends on a unit or a parameter. Pure functions; none needs a backward pass of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp
from torch.nn.modules.conv import _ConvTransposeNd

__all__ = [
    "activity",
    "contributions",
    "next_layer_gated",
    "normalise",
    "outgoing",
    "parameter_gradient",
    "unit_gradient",
]

HALF = (torch.float16, torch.bfloat16)


def contributions(gradient: Tensor, x: Tensor, unit_dim: int = -1, batch_dim: int = 0) -> Tensor:
    """What each unit contributes to the loss of each sample: the sum of dL/dx * x over positions, (samples, units).

    To first order it is the change of the loss when the unit is removed: L - L(x_i = 0).

    >>> contributions(torch.ones(2, 3, 4, 4), torch.ones(2, 3, 4, 4), unit_dim=1)
    tensor([[16., 16., 16.],
            [16., 16., 16.]])
    """
    return _over_positions(_wide(gradient) * _wide(x), unit_dim, batch_dim, mean=False)


def unit_gradient(contribution: Tensor) -> Tensor:
    """mu_i = (dL/dx_i x_i)^2, averaged over samples (eq. n-mu).

    >>> unit_gradient(torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
    tensor([5., 2.])
    """
    return contribution.square().mean(0)


def activity(x: Tensor, unit_dim: int = -1, batch_dim: int = 0) -> Tensor:
    """mu_i = x_i^2, averaged over positions and samples (eqs. bio-relevance, availabilty_conv).

    >>> activity(torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
    tensor([5., 2.])
    """
    return _over_positions(_wide(x).square(), unit_dim, batch_dim, mean=True).mean(0)


def parameter_gradient(gradient: Tensor, parameter: Tensor) -> Tensor:
    """mu_theta = (dL/dtheta theta)^2 (eq. p-mu).

    >>> parameter_gradient(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 0.5]))
    tensor([9., 1.])
    """
    return (_wide(gradient) * _wide(parameter)).square_()


def outgoing(reader: nn.Module, units: int) -> Tensor:
    """The squared norm of the weights by which a layer reads each of its `units` inputs: sum_j w_ji^2 (eq. causallocal).

    `next-layer` relevance is this times `activity`. A layer behind a flattening reads every unit at several positions.

    >>> outgoing(nn.Linear(6, 4, bias=False), units=3).shape
    torch.Size([3])
    """
    weight = reader.weight
    assert isinstance(weight, Tensor)
    squares = _wide(weight.detach()).square()
    if isinstance(reader, _ConvTransposeNd) or type(reader).__name__ == "Conv1D":  # (inputs, outputs, ...)
        per_input = squares.flatten(1).sum(1)
    elif getattr(reader, "groups", 1) > 1:  # group g reads only its own block of inputs
        per_input = squares.unflatten(0, (reader.groups, -1)).flatten(3).sum((1, 3)).flatten()
    else:
        per_input = squares.transpose(0, 1).flatten(1).sum(1)
    return per_input.view(units, -1).sum(1)


def next_layer_gated(x: Tensor, reader: nn.Module, slope: Tensor, unit_dim: int = -1, batch_dim: int = 0) -> Tensor:
    """mu_i = sum_j (g_j f'(a_j) w_ji x_i)^2 over samples: the first-order effect of unit i on the gated units of the next layer.

    Args:
        x: what the reader reads, the activity of this site.
        reader: the next layer.
        slope: g_j f'(a_j), shaped like the reader's output; norms count with slope one.
    """
    weights = {name: _wide(p.detach()).square() * (name == "weight") for name, p in reader.named_parameters(recurse=False)}
    # The transposed layer with squared weights carries every output's squared slope back to the inputs it read.
    transposed = vjp(lambda inputs: functional_call(reader, weights, (inputs,)), _wide(x))[1]
    (carried,) = transposed(_wide(slope).square())
    return _over_positions(_wide(x).square() * carried, unit_dim, batch_dim, mean=False).mean(0)


def normalise(mu: Tensor, total: Tensor | float | None = None, count: int | None = None) -> Tensor:
    """mu / mean(mu): mean one over the layer, so that the scale of the loss does not matter (eq. mujN).

    Args:
        mu: relevances of a layer, or of a part of one.
        total: the sum over the whole layer, if mu is a part of it.
        count: the number of units or parameters of the whole layer, if mu is a part of it.

    >>> normalise(torch.tensor([1.0, 3.0]))
    tensor([0.5000, 1.5000])
    """
    total = mu.sum() if total is None else total
    return mu * ((mu.numel() if count is None else count) / total)


def _over_positions(values: Tensor, unit_dim: int, batch_dim: int, *, mean: bool) -> Tensor:
    """(samples, units), whatever dimensions stand between; a lone sample without a batch dimension counts as a batch of one."""
    unit, batch = unit_dim % values.dim(), batch_dim % values.dim()
    positions = [d for d in range(values.dim()) if d not in (unit, batch)]
    if positions:
        values = values.mean(positions) if mean else values.sum(positions)
    if unit == batch:
        return values.unsqueeze(0)
    return values if batch < unit else values.T


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The precision of relevance and availability: squares of gradients leave the range of half precision."""
    return torch.float32 if dtype in HALF else dtype


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in HALF else x
