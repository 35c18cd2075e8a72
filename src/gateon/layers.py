"""What a layer's units are: how many, along which dimension of its output, and which part of each parameter is theirs.

A *layer* makes units out of a weighted sum (Linear, convolutions, embeddings, attention); a *norm* rescales units it did not make.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from .norm import ContextNorm, UnitLength

__all__ = ["input_weights", "is_activation", "is_layer", "is_norm", "rescales", "spread", "unit_dim", "units_of"]


def units_of(module: nn.Module) -> int | None:
    """The number of units a layer or norm has; None for any other module.

    >>> units_of(nn.Conv2d(3, 8, 5)), units_of(nn.Embedding(100, 16)), units_of(nn.ReLU())
    (8, 16, None)
    """
    if isinstance(module, nn.Linear | nn.Bilinear):
        return int(module.out_features)
    if isinstance(module, _ConvNd):
        return int(module.out_channels)
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return module.embedding_dim
    if isinstance(module, nn.MultiheadAttention):
        return int(module.embed_dim)
    if _is_transposed_linear(module):
        return int(module.nf)  # type: ignore[arg-type]
    if isinstance(module, _NormBase | ContextNorm):
        return module.num_features
    if isinstance(module, nn.GroupNorm):
        return module.num_channels
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return int(module.normalized_shape[_layer_norm_axis(module)])
    if _is_foreign_norm(module):
        return int(module.weight.shape[0])  # type: ignore[index]
    return None


def is_layer(module: nn.Module | None) -> bool:
    """Whether the module makes units of its own."""
    kinds = (nn.Linear, nn.Bilinear, _ConvNd, nn.Embedding, nn.EmbeddingBag, nn.MultiheadAttention)
    return module is not None and (isinstance(module, kinds) or _is_transposed_linear(module))


def is_norm(module: nn.Module | None) -> bool:
    """Whether the module normalises units that another layer made."""
    if isinstance(module, UnitLength):
        return True
    return module is not None and units_of(module) is not None and not is_layer(module)


def is_activation(module: nn.Module | None) -> bool:
    """Whether the module acts on each unit alone, like ReLU: not Softmax or GLU, which mix them."""
    if module is None or isinstance(module, nn.MultiheadAttention | nn.GLU) or "softm" in type(module).__name__.lower():
        return False
    return type(module).__module__ in {"torch.nn.modules.activation", "transformers.activations"}


def unit_dim(module: nn.Module) -> int:
    """The dimension of the module's output that counts units; from the end where it can be, so that a batch is not needed.

    >>> unit_dim(nn.Linear(3, 4)), unit_dim(nn.Conv2d(3, 8, 5)), unit_dim(nn.Conv1d(3, 8, 5))
    (-1, -3, -2)
    """
    if isinstance(module, _ConvNd):
        return -1 - len(module.kernel_size)
    if isinstance(module, _NormBase | ContextNorm | nn.GroupNorm):
        return 1
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return _layer_norm_axis(module) - len(module.normalized_shape)
    return -1


def rescales(norm: nn.Module, units: int, dim: int) -> bool:
    """Whether the norm has these units, made along dimension `dim`, for its own.

    >>> rescales(nn.LayerNorm((5, 8)), 8, -1), rescales(nn.LayerNorm((8, 5, 5)), 8, -3), rescales(nn.LayerNorm(5), 8, -3)
    (True, True, False)
    """
    if isinstance(norm, nn.LayerNorm | nn.RMSNorm):
        shape = norm.normalized_shape
        return len(shape) >= -dim and shape[dim] == units
    return units_of(norm) in (None, units)


def spread(module: nn.Module, name: str, values: Tensor) -> Tensor | None:
    """One value per unit, shaped to multiply the module's parameter `name`; None if that parameter belongs to no single unit.

    >>> import torch
    >>> spread(nn.Conv2d(3, 8, 5), "weight", torch.ones(8)).shape
    torch.Size([8, 1, 1, 1])
    >>> spread(nn.Embedding(100, 16), "weight", torch.ones(16)).shape
    torch.Size([1, 16])
    """
    parameter = module.get_parameter(name)
    if isinstance(module, _ConvTransposeNd) and name == "weight":
        # The weight is (inputs, units / groups, ...): input block g feeds only the units of group g.
        groups, inputs, kernel = module.groups, module.in_channels, (1,) * len(module.kernel_size)
        per_group = values.view(groups, 1, -1).expand(groups, inputs // groups, -1)
        return per_group.reshape(inputs, -1, *kernel)
    axis = _unit_axis(module, name)
    if axis is None or parameter.shape[axis] != values.shape[0]:
        return None
    return values.view([-1 if d == axis else 1 for d in range(parameter.dim())])


def input_weights(module: nn.Module) -> tuple[dict[str, nn.Parameter], int]:
    """The weights by which a layer reads its inputs, and their dimension that counts these; heads of several tasks have one each.

    >>> weights, axis = input_weights(nn.ConvTranspose2d(3, 8, 5))
    >>> list(weights), axis
    (['weight'], 0)
    """
    found = {name: p for name, p in module.named_parameters(recurse=False) if name.split("_")[0] == "weight"}
    return found, 0 if isinstance(module, _ConvTransposeNd) or _is_transposed_linear(module) else 1


def _unit_axis(module: nn.Module, name: str) -> int | None:
    if isinstance(module, nn.MultiheadAttention):
        return 0 if name.startswith("out_proj.") else None
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) or (_is_transposed_linear(module) and name == "weight"):
        return 1
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return _layer_norm_axis(module)
    return 0 if is_layer(module) or is_norm(module) or is_activation(module) else None


def _layer_norm_axis(module: nn.LayerNorm | nn.RMSNorm) -> int:
    """Over (channels, height, width) the units are the channels, over (features,) the features: the first either way."""
    return 0


def _is_transposed_linear(module: nn.Module) -> bool:
    """The Linear of GPT-2 in transformers, whose weight is (inputs, units)."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def _is_foreign_norm(module: nn.Module) -> bool:
    """A norm class of another library, such as LlamaRMSNorm: called so, and with one learned scale a unit."""
    weight = getattr(module, "weight", None)
    return "Norm" in type(module).__name__ and isinstance(weight, Tensor) and weight.dim() == 1
