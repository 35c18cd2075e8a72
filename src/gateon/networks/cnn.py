"""The convolutional network of the paper's MNIST experiments, in any size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from ..anatomy.norm import ContextNorm
from .mlp import Norm, check_norm

__all__ = ["cnn"]


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
    """Convolution, norm and ReLU for every number of channels, one max pool, then the fully connected network.

    The paper gives channels, pool and hidden layers; kernels of 3 without padding are those of the
    example it refers to. A layer has a bias where no norm takes it away again: Adam would move such
    a bias by rounding errors alone, and the means that earlier contexts have stored would no longer
    fit.

    Args:
        shape: of one image, (channels, height, width).
        channels: of each convolution; (32, 32) for the paper's split MNIST.
        hidden: units of each hidden layer behind them; (2000, 2000) for its ten tasks.
        classes: outputs of the one head.
        pool: side of the square that max pooling makes one of, behind the last convolution.
        kernel: side of the kernels.
        norm: "context": statistics per context; "batch": of the batch at hand, in evaluation too
            (the released code); or "none".
        affine: whether norms learn scale and shift.

    >>> model = cnn((1, 28, 28), (4, 8), (20,), 10)
    >>> [name for name, _ in model.named_children()]
    ['conv1', 'norm1', 'relu1', 'conv2', 'norm2', 'relu2', 'pool', 'flatten', 'hidden1', 'norm3', 'relu3', 'head']
    >>> model.hidden1
    Linear(in_features=288, out_features=20, bias=False)
    """
    check_norm(norm)
    inputs, *size = _image(shape)
    left = [(side - len(channels) * (kernel - 1)) // pool for side in size]
    if min(left) < 1:
        at_least = len(channels) * (kernel - 1) + pool
        raise ValueError(
            f"Images of {size[0]} x {size[1]} are too small for this network: it needs {at_least} x {at_least}. "
            "Choose fewer convolutions."
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


def _image(shape: Sequence[int]) -> tuple[int, int, int]:
    """The shape of an image; anything else is refused."""
    if len(shape) != 3:
        raise ValueError(
            f"This network takes images (channels, height, width), not inputs of shape {tuple(shape)}: use an mlp."
        )
    channels, height, width = shape
    return channels, height, width
