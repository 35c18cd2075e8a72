"""The convolutional network of the paper's MNIST experiments, in any size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from ..anatomy.norm import ContextNorm
from .mlp import Norm, check_norm

__all__ = ["check_image", "cnn"]


def cnn(
    shape: Sequence[int],
    channels: Sequence[int] = (256, 512),
    hidden: Sequence[int] = (5000, 5000),
    classes: int = 10,
    *,
    pool: int = 4,
    kernel: int = 3,
    norm: Norm = "context",
    affine: bool = False,
) -> nn.Sequential:
    """Convolutions with norm and ReLU, one max pool, then the fully connected network.

    The paper gives channels, pool and hidden layers; kernels of 3 without padding are those of the
    example it refers to. A layer has no bias if a norm subtracts it again: rounding errors alone
    would make the scale-free steps of Adam move such a bias, and the means stored for earlier
    contexts would no longer fit.

    Args:
        shape: The shape of one image, (channels, height, width).
        channels: The channels of each convolution; (32, 32) for the paper's split MNIST.
        hidden: The units of each hidden layer behind them; (2000, 2000) for its ten tasks.
        classes: The number of outputs.
        pool: The side of the max pool behind the last convolution.
        kernel: The side of the kernels.
        norm: "context" for statistics per context; "batch" for those of the current batch, in
            evaluation too (the released code); or "none".
        affine: Whether norms learn scale and shift.

    >>> model = cnn((1, 28, 28), (4, 8), (20,), 10)
    >>> print(*dict(model.named_children()))
    conv1 norm1 relu1 conv2 norm2 relu2 pool flatten hidden1 norm3 relu3 head
    >>> model.hidden1
    Linear(in_features=288, out_features=20, bias=False)
    """
    check_norm(norm)
    inputs, *size = check_image(shape)
    left = [(side - len(channels) * (kernel - 1)) // pool for side in size]
    if min(left) < 1:
        at_least = len(channels) * (kernel - 1) + pool
        raise ValueError(
            f"Images must be at least {at_least} x {at_least} for this network, "
            f"got {size[0]} x {size[1]}: choose fewer convolutions."
        )
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    bias = norm == "none"

    def add(name: str, layer: nn.Module, units: int) -> None:
        layers[name] = layer
        number = sum(isinstance(m, nn.ReLU) for m in layers.values()) + 1
        if norm != "none":
            layers[f"norm{number}"] = ContextNorm(units, affine=affine, statistics=norm)
        layers[f"relu{number}"] = nn.ReLU()

    for n, units in enumerate(channels, 1):
        add(f"conv{n}", nn.Conv2d(inputs, units, kernel, bias=bias), units)
        inputs = units
    layers |= {"pool": nn.MaxPool2d(pool), "flatten": nn.Flatten()}
    inputs *= left[0] * left[1]
    for n, units in enumerate(hidden, 1):
        add(f"hidden{n}", nn.Linear(inputs, units, bias), units)
        inputs = units
    layers["head"] = nn.Linear(inputs, classes)
    return nn.Sequential(layers)


def check_image(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return the shape of an image; ValueError for any other shape.

    >>> check_image([3, 32, 32])
    (3, 32, 32)
    """
    if len(shape) != 3:
        raise ValueError(
            "This network takes images (channels, height, width), "
            f"got inputs of shape {tuple(shape)}: use an mlp."
        )
    channels, height, width = shape
    return channels, height, width
