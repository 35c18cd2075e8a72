"""The fully connected network of the paper's MNIST experiments, in any size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import nn

from ..anatomy.norm import ContextNorm, UnitLength

__all__ = ["Norm", "check_norm", "mlp"]

Norm = Literal["context", "batch", "none"]


def mlp(
    inputs: int,
    hidden: Sequence[int] = (2000, 2000),
    classes: int = 10,
    *,
    norm: Norm = "context",
    affine: bool = False,
    unit_length: bool = False,
    input_dropout: float = 0.0,
    dropout: float = 0.0,
) -> nn.Sequential:
    """Linear, norm and ReLU for every hidden layer, then a Linear head; images are flattened.

    Args:
        inputs: The size of one input, 784 for MNIST.
        hidden: The number of units of each hidden layer.
        classes: The number of outputs.
        norm: "context" for statistics per context; "batch" for those of the current batch, in
            evaluation too (the released code); or "none".
        affine: Whether norms learn scale and shift.
        unit_length: Whether to scale hidden activity to length one (the released code).
        input_dropout: The dropout rate of the inputs.
        dropout: The dropout rate of the hidden units.

    >>> mlp(4, (3,), 2)
    Sequential(
      (0): Flatten(start_dim=1, end_dim=-1)
      (1): Linear(in_features=4, out_features=3, bias=True)
      (2): ContextNorm(3, contexts=1, statistics='context')
      (3): ReLU()
      (4): Linear(in_features=3, out_features=2, bias=True)
    )
    """
    check_norm(norm)
    layers: list[nn.Module] = [nn.Flatten()]
    if input_dropout:
        layers.append(nn.Dropout(input_dropout))
    for units in hidden:
        layers.append(nn.Linear(inputs, units))
        if norm != "none":
            layers.append(ContextNorm(units, affine=affine, statistics=norm))
        layers.append(nn.ReLU())
        if unit_length:
            layers.append(UnitLength())
        if dropout:
            layers.append(nn.Dropout(dropout))
        inputs = units
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


def check_norm(norm: str) -> None:
    """Raise ValueError for an unknown norm."""
    if norm not in ("context", "batch", "none"):
        raise ValueError(f'norm must be "context", "batch" or "none", got {norm!r}.')
