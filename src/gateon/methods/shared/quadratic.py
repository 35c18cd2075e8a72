"""Quadratic penalties, slope / 2 * sum_i w_i (theta_i - c_i)^2, as gradients before the step.

The gradient of such a penalty is known: slope * w * (theta - c). Adding it block by block costs one
pass over the parameters, where a term of the loss would build a graph and several tensors of their
size. So the loss a learner reports is that of the task alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ...availability.ledgers import blocks
from .calls import trainable

__all__ = ["check_fits", "check_loaded", "energy", "pull"]


@torch.no_grad()
def pull(parameter: Tensor, importance: Tensor, centre: Tensor, slope: float) -> None:
    """gradient += slope * importance * (parameter - centre).

    >>> weight = torch.ones(1, requires_grad=True)
    >>> weight.grad = torch.zeros(1)
    >>> pull(weight, torch.tensor([2.0]), torch.tensor([0.5]), 3.0)
    >>> weight.grad
    tensor([3.])
    """
    assert parameter.grad is not None
    for g, theta, w, c in blocks(parameter.grad, parameter, importance, centre):
        g.addcmul_(w, theta - c, value=slope)


@torch.no_grad()
def energy(
    model: nn.Module, importance: Mapping[str, Tensor], centre: Mapping[str, Tensor]
) -> Tensor:
    """sum_i w_i (theta_i - c_i)^2 over all parameters.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> round(float(energy(model, {"weight": torch.ones(2, 2)}, {"weight": model.weight - 1})), 3)
    4.0
    """
    parameters = trainable(model)
    parts = [
        (w * (parameters[name] - centre[name]).square()).sum() for name, w in importance.items()
    ]
    return torch.stack(parts).sum() if parts else torch.zeros(())


def check_fits(kept: Mapping[str, Tensor], model: nn.Module) -> None:
    """Check that what is remembered of a parameter has its shape; new ones have no past."""
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    for name, tensor in kept.items():
        if shapes.get(name) != tuple(tensor.shape):
            now = f"is {shapes[name]} now" if name in shapes else "is gone"
            raise ValueError(
                f"The parameter {name!r} was {tuple(tensor.shape)} when it was last seen and "
                f"{now}: keep the parameters of a model from task to task, or start with a new "
                "method."
            )


def check_loaded(state: Mapping[str, Mapping[str, Tensor]], model: nn.Module | None) -> nn.Module:
    """The model a state is loaded for: a prepared one, with the parameters of the state."""
    if model is None:
        raise ValueError("There is no model to load this state for: call prepare(model) first.")
    for kept in state.values():
        check_fits(kept, model)
    return model
