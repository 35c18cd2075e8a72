"""Relevance mu: how much the loss depends on a unit or a parameter.

Pure functions, none of which needs an extra backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp

from ..anatomy.kinds import input_weights
from ..anatomy.shards import full
from ..gating.units import activity, contributions, over_positions, wide

__all__ = [
    "activity",
    "contributions",
    "next_layer_gated",
    "normalise",
    "outgoing",
    "parameter_fisher",
    "parameter_gradient",
    "unit_fisher",
    "unit_gradient",
]


def unit_gradient(contribution: Tensor) -> Tensor:
    """mu_i = (dL/dx_i x_i)^2, averaged over samples (eq. n-mu).

    Args:
        contribution: dL/dx_i x_i, (samples, units); see `contributions`.

    >>> import torch
    >>> unit_gradient(torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
    tensor([5., 2.])
    """
    return contribution.square().mean(0)


def parameter_gradient(gradient: Tensor, parameter: Tensor) -> Tensor:
    """mu_theta = (dL/dtheta theta)^2 (eq. p-mu).

    >>> import torch
    >>> parameter_gradient(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 0.5]))
    tensor([9., 1.])
    """
    return (wide(gradient) * wide(parameter)).square_()


def parameter_fisher(gradient: Tensor, parameter: Tensor) -> Tensor:
    """mu_theta = (dL/dtheta)^2, whatever theta is now (eq. p-fisher).

    A weight near 0 may matter as much as a large one: what counts is how much the loss would change
    if the weight did.

    >>> import torch
    >>> parameter_fisher(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 0.5]))
    tensor([1., 4.])
    """
    return wide(gradient).square()


def unit_fisher(
    gradients: Iterable[tuple[Tensor, Callable[[Tensor], Tensor | None]]], units: int
) -> Tensor:
    """mu_i = sum of (dL/dtheta)^2 over the parameters of unit i (eq. n-fisher).

    Args:
        gradients: Of the parameters that units own, each with what shapes one value per unit to
            multiply it.
        units: How many there are.

    >>> import torch
    >>> rows = torch.tensor([[1.0, 2.0], [0.0, 3.0]]), lambda of_units: of_units[:, None]
    >>> unit_fisher([rows, (torch.tensor([1.0, 1.0]), lambda of_units: of_units)], 2)
    tensor([ 6., 10.])
    """
    sums = []
    for gradient, shaped in gradients:
        squares = wide(gradient).square()
        owners = shaped(torch.arange(units, device=gradient.device))
        assert owners is not None
        if owners.numel() == units:
            sums.append(squares.movedim(owners.shape.index(units), 0).reshape(units, -1).sum(1))
        else:
            owner = owners.expand_as(squares).reshape(-1)
            sums.append(squares.new_zeros(units).index_add_(0, owner, squares.reshape(-1)))
    return torch.stack(sums).sum(0)


def outgoing(reader: nn.Module, units: int) -> Tensor:
    """sum_j w_ji^2 over the weights with which a layer reads each input unit (eq. causallocal).

    `next-layer` relevance is this times `activity`.

    Args:
        reader: The layer.
        units: The number of units it reads. After flattening, each is read at several positions.

    >>> outgoing(nn.Linear(6, 4, bias=False), units=3).shape
    torch.Size([3])
    """
    weight = getattr(reader, "active_weight", None)  # of a layer with one weight per context
    if weight is None:
        weights: list[Tensor] = [*input_weights(reader)[0].values()]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)  # of both directions
    assert isinstance(weight, Tensor)
    squares = wide(full(weight.detach())).square()
    if input_weights(reader)[1] == 0:  # (inputs, outputs, ...)
        per_input = squares.flatten(1).sum(1)
    elif getattr(reader, "groups", 1) > 1:  # group g reads only its own block of inputs
        per_input = squares.unflatten(0, (reader.groups, -1)).flatten(3).sum((1, 3)).flatten()
    else:
        per_input = squares.transpose(0, 1).flatten(1).sum(1)
    return per_input.view(units, -1).sum(1)


def next_layer_gated(
    x: Tensor, reader: nn.Module, slope: Tensor, unit_dim: int = -1, batch_dim: int = 0
) -> Tensor:
    """mu_i = sum_j (g_j f'(a_j) w_ji x_i)^2, averaged over samples.

    This is the first-order effect of unit i on the gated units of the next layer.

    Args:
        x: The activity of this site, which the reader reads.
        reader: The next layer.
        slope: g_j f'(a_j), shaped like the reader's output; a norm counts as slope one.
        unit_dim: The dimension of x that counts units.
        batch_dim: The dimension of x that counts samples.
    """
    named = reader.named_parameters()
    own = {name: full(p.detach()) for name, p in named if "context_" not in name}  # not the gates
    weights = {
        name: wide(p).square() * name.rpartition(".")[2].startswith("weight")
        for name, p in own.items()
    }
    # The transposed layer with squared weights carries each output's squared slope back to the
    # inputs it read.
    transposed = vjp(lambda inputs: functional_call(reader, weights, (inputs,)), wide(x))[1]
    (carried,) = transposed(wide(slope).square())
    return over_positions(wide(x).square() * carried, unit_dim, batch_dim, mean=False).mean(0)


class WithoutHooks(nn.Module):
    """A layer called without its hooks, so that its gates and observers do not see the call."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output for x."""
        made: Tensor = self.layer.forward(x)
        return made


def normalise(mu: Tensor, total: Tensor | float | None = None, count: int | None = None) -> Tensor:
    """mu / mean(mu), so that the scale of the loss does not matter (eq. mujN).

    Args:
        mu: Relevances of a layer, or of a part of one.
        total: The sum over the whole layer, if mu is a part of it.
        count: The number of units or parameters of the whole layer, if mu is a part of it.

    Returns:
        Relevances with mean one over the layer.

    >>> import torch
    >>> normalise(torch.tensor([1.0, 3.0]))
    tensor([0.5000, 1.5000])
    """
    total = mu.sum() if total is None else total
    return mu * ((mu.numel() if count is None else count) / total)
