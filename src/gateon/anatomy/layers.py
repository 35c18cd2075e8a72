"""The kinds of layers in torch, and a few from other libraries."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from .kinds import Kind, layer_kind, stem
from .norm import ContextNorm, UnitLength

__all__: list[str] = []


@layer_kind(nn.Linear)
class Linear(Kind):
    """weight (units, inputs)."""

    narrows = True


@layer_kind(nn.Bilinear)
class Bilinear(Kind):
    """weight (units, inputs 1, inputs 2)."""

    input_sizes = ()


@layer_kind(_ConvNd)
class Convolution(Kind):
    """weight (units, inputs / groups, ...); units are channels."""

    narrows = True
    unit_sizes = ("out_channels",)
    input_sizes = ("in_channels",)

    def dim(self, layer: Any) -> int:
        """Channels come before the positions."""
        return -1 - len(layer.kernel_size)


@layer_kind(_ConvTransposeNd)
class TransposedConvolution(Convolution):
    """weight (inputs, units / groups, ...); each group of inputs feeds only its own units."""

    def unit_axis(self, layer: Any, name: str) -> int | None:
        """Units are the second dimension of the weight."""
        return 1 if name == "weight" else 0

    def input_axis(self, layer: Any) -> int:
        """Inputs are the first dimension of the weight."""
        return 0

    def spread(self, layer: Any, name: str, values: Tensor) -> Tensor | None:
        """Each group of inputs gets the values of its own units."""
        if stem(name) != "weight":
            return super().spread(layer, name, values)
        groups, inputs, kernel = layer.groups, layer.in_channels, (1,) * len(layer.kernel_size)
        if layer.get_parameter(name).shape[:2] != (inputs, len(values) // groups):
            return None  # a factor of the weight, with another shape
        per_group = values.view(groups, 1, -1).expand(groups, inputs // groups, -1)
        return per_group.reshape(inputs, -1, *kernel)


@layer_kind(nn.Embedding, nn.EmbeddingBag)
class Embedding(Kind):
    """weight (words, units)."""

    unit_sizes = ("embedding_dim",)
    input_sizes = ()

    def unit_axis(self, layer: Any, name: str) -> int | None:
        """Every word has a value for each unit."""
        return 1


@layer_kind(nn.MultiheadAttention)
class Attention(Kind):
    """Its units are those of the output projection; the input projections belong to no unit."""

    unit_sizes = ("embed_dim",)
    input_sizes = ()

    def spread(self, layer: Any, name: str, values: Tensor) -> Tensor | None:
        """Only parameters of the output projection belong to a single unit."""
        return super().spread(layer, name, values) if name.startswith("out_proj.") else None


def _is_transposed_linear(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


@layer_kind(where=_is_transposed_linear)
class TransposedLinear(Kind):
    """The Linear of GPT-2 in transformers: weight (inputs, units)."""

    narrows = True
    unit_sizes = ("nf",)
    input_sizes = ("nx",)

    def unit_axis(self, layer: Any, name: str) -> int | None:
        """Units are the second dimension of the weight."""
        return 1 if name == "weight" else 0

    def input_axis(self, layer: Any) -> int:
        """Inputs are the first dimension of the weight."""
        return 0


@layer_kind(_NormBase, ContextNorm)
class BatchNorm(Kind):
    """Normalises each unit over the batch."""

    makes_units = False
    unit_sizes = ("num_features",)

    def dim(self, layer: Any) -> int:
        """Units come right after the batch."""
        return 1


@layer_kind(nn.GroupNorm)
class GroupNorm(Kind):
    """Normalises groups of units of each sample."""

    makes_units = False
    unit_sizes = ("num_channels",)

    def dim(self, layer: Any) -> int:
        """Units come right after the batch."""
        return 1


@layer_kind(nn.LayerNorm, nn.RMSNorm)
class LayerNorm(Kind):
    """Normalises all units of a sample; over (channels, height, width) the units are channels."""

    makes_units = False

    def units(self, layer: Any) -> int:
        """The first of the normalised dimensions counts units."""
        return int(layer.normalized_shape[0])

    def dim(self, layer: Any) -> int:
        """The first of the normalised dimensions, counted from the end."""
        return -len(layer.normalized_shape)


@layer_kind(UnitLength)
class AnyUnits(Kind):
    """A norm for any number of units."""

    makes_units = False

    def units(self, layer: Any) -> int | None:
        """Unknown."""
        return None


def _is_foreign_norm(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    named = "Norm" in type(module).__name__
    return named and isinstance(weight, Tensor) and weight.dim() == 1


@layer_kind(where=_is_foreign_norm)
class ForeignNorm(Kind):
    """A norm from another library, such as LlamaRMSNorm, with one learned scale per unit."""

    makes_units = False

    def units(self, layer: Any) -> int:
        """One scale per unit."""
        return int(layer.weight.shape[0])

    def scale_offset(self, layer: Any) -> float:
        """1 for Gemma's norms, which multiply by 1 + weight: with a weight of 0 they still speak."""
        twin = copy.deepcopy(layer).eval()
        weight = twin.weight.detach()
        weight.zero_()
        x = torch.arange(1.0, 1 + 2 * len(weight), dtype=weight.dtype, device=weight.device)
        with torch.no_grad():
            silent = not twin.forward(x.view(1, 2, -1)).any()
        return 0.0 if silent else 1.0
