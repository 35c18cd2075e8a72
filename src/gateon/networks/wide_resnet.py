"""The Wide ResNet of the paper's CIFAR-100 experiments (Zagoruyko and Komodakis 2016), of any depth and width."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..anatomy.norm import ContextNorm
from .cnn import _image
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
    """A first convolution, three groups of pre-activation blocks of 16, 32 and 64 times `widen` channels, mean pool, head.

    The second and the third group halve the sides of the image. Sites are called "first",
    "group1.0.conv1" and so on.

    Args:
        depth: number of convolutions, 6 n + 4 for n blocks a group; shortcuts with a convolution of
            their own count once a group.
        widen: how many times wider than a ResNet.
        classes: outputs of the one head.
        shape: of one image, (channels, height, width).
        first: channels of the first convolution, 16 in a Wide ResNet as published; None for the
            paper's 128 at a width of 10, in proportion at others.
        norm: "context": statistics per context; "batch": of the batch at hand, in evaluation too;
            or "none".
        affine: whether norms learn scale and shift.

    >>> model = wide_resnet(16, 2, classes=5)
    >>> [name for name, _ in model.named_children()]
    ['first', 'group1', 'group2', 'group3', 'norm', 'relu', 'pool', 'flatten', 'head']
    >>> model.first.out_channels, model.group3[1].conv2.out_channels, len(model.group1)
    (26, 128, 2)
    """
    check_norm(norm)
    first = round(12.8 * widen) if first is None else first
    inputs, height, width = _image(shape)
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(
            f"The depth of a Wide ResNet is 10, 16, 22, 28 ... (6 n + 4), not {depth}."
        )
    if widen < 1 or first < 1:
        raise ValueError(
            f"widen and first are whole numbers of at least 1, not {widen} and {first}."
        )
    if height % 4 or width % 4:
        raise ValueError(
            f"Sides of an image are halved twice: {height} x {width} must be multiples of 4; crop them, or choose the network cnn."
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
            # Activity takes the layout of the weights; this one is faster on processors.
            module.weight.data = module.weight.data.contiguous(memory_format=torch.channels_last)
    return model


class _Block(nn.Module):
    """x + conv2(relu(norm2(conv1(a)))), a = relu(norm1(x)); where the width changes, a convolution of a takes the place of x."""

    def __init__(self, inputs: int, units: int, stride: int, norm: Norm, affine: bool) -> None:
        super().__init__()
        bias = norm == "none"
        self.norm1, self.relu1 = _norm(inputs, norm, affine), nn.ReLU()
        self.conv1 = nn.Conv2d(inputs, units, 3, stride, padding=1, bias=bias)
        self.norm2, self.relu2 = _norm(units, norm, affine), nn.ReLU()
        self.conv2 = nn.Conv2d(units, units, 3, padding=1, bias=bias)
        self.shortcut = (
            nn.Conv2d(inputs, units, 1, stride, bias=bias)
            if (inputs, stride) != (units, 1)
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        a = self.relu1(self.norm1(x))
        inside: Tensor = self.conv2(self.relu2(self.norm2(self.conv1(a))))
        return inside + (x if self.shortcut is None else self.shortcut(a))


def _norm(units: int, norm: Norm, affine: bool) -> nn.Module:
    return nn.Identity() if norm == "none" else ContextNorm(units, affine=affine, statistics=norm)
