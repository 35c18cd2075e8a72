"""The kinds of layers in torch, and a few from other libraries."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from .composite import is_message_passing
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


@layer_kind(nn.RNNBase)
class Recurrent(Kind):
    """nn.LSTM, nn.GRU and nn.RNN: units are outputs, which every weight inside feeds."""

    input_sizes = ("input_size",)

    def units(self, layer: Any) -> int:
        """Those of the top layer, in both directions if it has two."""
        return int((layer.proj_size or layer.hidden_size) * (2 if layer.bidirectional else 1))

    def unit_axis(self, layer: Any, name: str) -> int | None:
        """None: through the recurrence every weight takes part in every unit."""
        return None

    def reads_with(self, name: str) -> bool:
        """The input weights of the first layer, in both directions."""
        return name.startswith("weight_ih_l0")


@layer_kind(nn.RNNCellBase)
class Cell(Kind):
    """One step of a recurrent layer: weights (k units, inputs) and (k units, units), k gates."""

    unit_sizes = ("hidden_size",)
    input_sizes = ("input_size",)

    def spread(self, layer: Any, name: str, values: Tensor) -> Tensor | None:
        """A unit has a row for each of the cell's gates."""
        rows = len(layer.get_parameter(name)) // layer.hidden_size
        return super().spread(layer, name, values.repeat(rows))

    def reads_with(self, name: str) -> bool:
        """Not the weights that read the state."""
        return name == "weight_ih"


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


def _is_linear_of_graphs(module: nn.Module) -> bool:
    kind = type(module)
    return kind.__name__ == "Linear" and kind.__module__.startswith("torch_geometric.")


@layer_kind(where=_is_linear_of_graphs)
class LinearOfGraphs(Linear):
    """The Linear of torch_geometric."""

    unit_sizes = ("out_channels",)
    input_sizes = ("in_channels",)


@layer_kind(where=is_message_passing)
class GraphConvolution(Kind):
    """GCNConv, GATConv, SAGEConv and others: units are the channels of every node."""

    # Sums over neighbours of linear maps; in others, such as attention, a unit depends on the
    # weights of all.
    linear = ("GCNConv", "SAGEConv", "GraphConv")
    input_sizes = ("in_channels",)

    def units(self, layer: Any) -> int:
        """Channels, side by side for every head."""
        heads = layer.heads if getattr(layer, "concat", False) and hasattr(layer, "heads") else 1
        return int(layer.out_channels * heads)

    def spread(self, layer: Any, name: str, values: Tensor) -> Tensor | None:
        """Rows of its Linears where a unit is made by its own row alone; the bias in any case."""
        mixes = type(layer).__name__ not in self.linear or (
            type(layer).__name__ == "SAGEConv" and (layer.normalize or layer.project)
        )
        if mixes and name != "bias":
            return None
        return super().spread(layer, name, values)

    def reads_with(self, name: str) -> bool:
        """Unknown: what it reads is not only its own units."""
        return False


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
        own = type(layer).forward in (nn.LayerNorm.forward, nn.RMSNorm.forward)
        if own or len(layer.normalized_shape) > 1:
            return -len(layer.normalized_shape)
        return _dim_by_trying(layer, layer.normalized_shape[0])


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


def _dim_by_trying(norm: nn.Module, units: int) -> int:
    """The dimension that a norm normalises: the last, or that of channels as in ConvNeXt."""
    twin, like = copy.deepcopy(norm).eval(), next(norm.parameters(), torch.empty(0))
    two, three = (size if size != units else size + 2 for size in (2, 3))
    for shape, dim in (((1, two, three, units), -1), ((1, units, two, three), -3)):
        try:
            with torch.no_grad():
                made = twin.forward(torch.ones(shape, dtype=like.dtype, device=like.device))
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError):
            continue
        if isinstance(made, Tensor) and made.shape == shape:
            return dim
    return -1


@layer_kind(where=_is_foreign_norm)
class ForeignNorm(Kind):
    """A norm from another library, such as LlamaRMSNorm, with one learned scale per unit."""

    makes_units = False

    def units(self, layer: Any) -> int:
        """One scale per unit."""
        return int(layer.weight.shape[0])

    def dim(self, layer: Any) -> int:
        """The last dimension, or that of channels."""
        return _dim_by_trying(layer, self.units(layer))

    def scale_offset(self, layer: Any) -> float:
        """1 for Gemma's norms, which multiply by 1 + weight: with a weight of 0 they still speak."""
        twin = copy.deepcopy(layer).eval()
        weight = twin.weight.detach()
        weight.zero_()
        x = torch.arange(1.0, 1 + 2 * len(weight), dtype=weight.dtype, device=weight.device)
        with torch.no_grad():
            silent = not twin.forward(x.view(1, 2, -1)).any()
        return 0.0 if silent else 1.0
