"""The Wide ResNet (Zagoruyko and Komodakis 2016) of the CIFAR-100 experiments, in any size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..anatomy.norm import ContextNorm
from .cnn import check_image
from .mlp import Norm, check_norm

__all__ = ["wide_resnet"]


def wide_resnet(
    depth: int = 28,
    widen: int = 10,
    classes: int = 100,
    *,
    shape: Sequence[int] = (3, 32, 32),
    first: int | None = None,
    norm: Norm = "context",
    affine: bool = False,
) -> nn.Sequential:
    """A first convolution, three groups of pre-activation blocks, mean pool and head.

    The groups have 16, 32 and 64 times `widen` channels; the second and the third halve the sides
    of the image. Sites are called "first", "group1.0.conv1" and so on.

    Args:
        depth: The number of convolutions, 6 n + 4 for n blocks per group; the convolutions of
            shortcuts count once per group.
        widen: How many times wider it is than a ResNet.
        classes: The number of outputs.
        shape: The shape of one image, (channels, height, width).
        first: The channels of the first convolution, 16 in a Wide ResNet as published; None for the
            paper's 128 at width 10, and in proportion at others.
        norm: "context" for statistics per context; "batch" for those of the current batch, in
            evaluation too; or "none".
        affine: Whether norms learn scale and shift.

    >>> model = wide_resnet(16, 2, classes=5)
    >>> [name for name, _ in model.named_children()]
    ['first', 'group1', 'group2', 'group3', 'norm', 'relu', 'pool', 'flatten', 'head']
    >>> model.first.out_channels, model.group3[1].conv2.out_channels, len(model.group1)
    (26, 128, 2)
    """
    check_norm(norm)
    first = round(12.8 * widen) if first is None else first
    inputs, height, width = check_image(shape)
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(
            f"The depth of a Wide ResNet must be 10, 16, 22, 28 ... (6 n + 4), got {depth}."
        )
    if widen < 1 or first < 1:
        raise ValueError(f"widen and first must be at least 1, got {widen} and {first}.")
    if height % 4 or width % 4:
        raise ValueError(
            f"The sides of images must be multiples of 4, since they are halved twice, got "
            f"{height} x {width}: crop the images, or choose the network cnn."
        )
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        first=nn.Conv2d(inputs, first, 3, padding=1, bias=norm == "none")
    )
    before = first
    for group in (1, 2, 3):
        units = 16 * widen * 2 ** (group - 1)
        blocks = []
        for n in range((depth - 4) // 6):
            blocks.append(_Block(before, units, 2 if group > 1 and n == 0 else 1, norm, affine))
            before = units
        layers[f"group{group}"] = nn.Sequential(*blocks)
    layers |= {
        "norm": _norm(before, norm, affine),
        "relu": nn.ReLU(),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
    }
    layers["head"] = nn.Linear(before, classes)
    model = nn.Sequential(layers)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            # Activity takes the layout of the weights; this one is faster on CPUs.
            module.weight.data = module.weight.data.contiguous(memory_format=torch.channels_last)
    return model


class _Block(nn.Module):
    """x + conv2(relu(norm2(conv1(a)))) with a = relu(norm1(x)).

    Where the width changes, a convolution of a replaces x.
    """

    def __init__(self, inputs: int, units: int, stride: int, norm: Norm, affine: bool) -> None:
        super().__init__()
        bias = norm == "none"
        self.norm1, self.relu1 = _norm(inputs, norm, affine), nn.ReLU()
        self.conv1 = nn.Conv2d(inputs, units, 3, stride, padding=1, bias=bias)
        self.norm2, self.relu2 = _norm(units, norm, affine), nn.ReLU()
        self.conv2 = nn.Conv2d(units, units, 3, padding=1, bias=bias)
        changes = (inputs, stride) != (units, 1)
        self.shortcut = nn.Conv2d(inputs, units, 1, stride, bias=bias) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        a = self.relu1(self.norm1(x))
        inside: Tensor = self.conv2(self.relu2(self.norm2(self.conv1(a))))
        return inside + (x if self.shortcut is None else self.shortcut(a))


def _norm(units: int, norm: Norm, affine: bool) -> nn.Module:
    return nn.Identity() if norm == "none" else ContextNorm(units, affine=affine, statistics=norm)
