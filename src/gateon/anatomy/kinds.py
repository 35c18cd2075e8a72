"""Kinds of layers: what gateon needs to know about a layer type, registered in one place.

A *layer* makes units out of a weighted sum (Linear, convolutions, embeddings, attention); a *norm*
rescales units it did not make. To teach gateon a new type, register a `Kind` for it:

    @layer_kind(MyLinear)
    class MyLinearKind(Kind):
        narrows = True

        def units(self, layer):
            return layer.out_features

`gateon.anatomy.layers` registers the layers of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from .adapters import INSIDE, base_layer, is_adapted

__all__ = [
    "Kind",
    "has_computed_weight",
    "input_weights",
    "inputs_of",
    "is_activation",
    "is_layer",
    "is_norm",
    "kind_of",
    "layer_kind",
    "narrows",
    "outputs_per_unit",
    "rescales",
    "resize",
    "spread",
    "spread_columns",
    "spread_inputs",
    "stem",
    "unit_dim",
    "units_of",
]


ACTIVATION_MODULES = {
    "torch.nn.modules.activation",
    "transformers.activations",
    "timm.layers.activations",
}


class Kind:
    """One kind of layer. The defaults are those of a Linear: weight (units, inputs), bias (units).

    Attributes:
        makes_units: False for a norm, which rescales the units of another layer.
        narrows: Whether units and inputs can be left out of a sub-network.
        unit_sizes: The attributes that hold the number of units.
        input_sizes: The attributes that hold the number of inputs.
    """

    makes_units = True
    narrows = False
    unit_sizes: tuple[str, ...] = ("out_features",)
    input_sizes: tuple[str, ...] = ("in_features",)

    def units(self, layer: Any) -> int | None:
        """The number of units; None if unknown."""
        return int(getattr(layer, self.unit_sizes[0]))

    def dim(self, layer: Any) -> int:
        """The dimension of the output that counts units, from the end where possible."""
        return -1

    def unit_axis(self, layer: Any, name: str) -> int | None:
        """The dimension of a parameter that counts units; None if no single unit owns it.

        Args:
            layer: The layer.
            name: The tensor the parameter is part of, such as "weight" or "bias".
        """
        return 0

    def input_axis(self, layer: Any) -> int:
        """The dimension of the weight that counts inputs."""
        return 1

    def reads_with(self, name: str) -> bool:
        """Whether the layer reads its inputs with the parameter of that name."""
        return stem(name) == "weight"

    def scale_offset(self, layer: Any) -> float:
        """What a norm adds to its weight before it multiplies by it."""
        return 0.0

    def spread(self, layer: Any, name: str, values: Tensor) -> Tensor | None:
        """One value per unit, shaped to multiply a parameter; see `spread`."""
        parameter, axis = layer.get_parameter(name), self.unit_axis(layer, stem(name))
        if axis is None or axis >= parameter.dim() or parameter.shape[axis] != len(values):
            return None
        return values.view([-1 if d == axis else 1 for d in range(parameter.dim())])


REGISTERED: dict[type, Kind] = {}
RECOGNISED: list[tuple[Callable[[nn.Module], bool], Kind]] = []


def layer_kind(
    *types: type, where: Callable[[nn.Module], bool] | None = None
) -> Callable[[type[Kind]], type[Kind]]:
    """Register a `Kind` for layer types, or for modules that a function recognises.

    Args:
        types: The layer types. Subclasses are of the same kind unless registered themselves.
        where: Whether a module is of this kind, for libraries that may not be installed.
    """

    def register(kind: type[Kind]) -> type[Kind]:
        REGISTERED.update(dict.fromkeys(types, kind()))
        if where is not None:
            RECOGNISED.append((where, kind()))
        return kind

    return register


def kind_of(module: nn.Module | None) -> Kind | None:
    """The kind of a layer or norm; None for any other module.

    >>> kind_of(nn.ReLU()) is None, kind_of(nn.Conv2d(3, 8, 5)).narrows
    (True, True)
    """
    if module is None:
        return None
    module = base_layer(module)
    for base in type(module).__mro__:
        if base in REGISTERED:
            return REGISTERED[base]
    return next((kind for matches, kind in RECOGNISED if matches(module)), None)


def units_of(module: nn.Module) -> int | None:
    """The number of units of a layer or norm; None for any other module.

    >>> units_of(nn.Conv2d(3, 8, 5)), units_of(nn.Embedding(100, 16)), units_of(nn.ReLU())
    (8, 16, None)
    """
    kind = kind_of(module)
    return None if kind is None else kind.units(base_layer(module))


def is_layer(module: nn.Module | None) -> bool:
    """Whether the module makes units."""
    kind = kind_of(module)
    return kind is not None and kind.makes_units


def is_norm(module: nn.Module | None) -> bool:
    """Whether the module normalises units that another layer made."""
    kind = kind_of(module)
    return kind is not None and not kind.makes_units


def is_activation(module: nn.Module | None) -> bool:
    """Whether the module acts on each unit alone, like ReLU; Softmax and GLU mix units."""
    if module is None or isinstance(module, nn.MultiheadAttention | nn.GLU):
        return False
    if "softm" in type(module).__name__.lower():
        return False
    return type(module).__module__ in ACTIVATION_MODULES


def unit_dim(module: nn.Module) -> int:
    """The dimension of the module's output that counts units, from the end where possible.

    >>> unit_dim(nn.Linear(3, 4)), unit_dim(nn.Conv2d(3, 8, 5)), unit_dim(nn.Conv1d(3, 8, 5))
    (-1, -3, -2)
    """
    kind = kind_of(module)
    return -1 if kind is None else kind.dim(base_layer(module))


def inputs_of(module: nn.Module | None) -> int | None:
    """The number of inputs of a layer; None if unknown.

    >>> inputs_of(nn.Linear(3, 4)), inputs_of(nn.Embedding(100, 16))
    (3, None)
    """
    kind = kind_of(module)
    if kind is None or not kind.input_sizes or not kind.makes_units or module is None:
        return None
    size = getattr(base_layer(module), kind.input_sizes[0], None)
    return size if isinstance(size, int) else None


def narrows(module: nn.Module | None) -> bool:
    """Whether any inputs and outputs of the layer can be left out of a sub-network."""
    kind = kind_of(module)
    if module is None or kind is None or is_adapted(module):
        return False
    # A computed weight of one unit may depend on those of the others.
    computed = has_computed_weight(module) or bool(module._forward_pre_hooks)
    return kind.narrows and not computed and getattr(module, "groups", 1) == 1


def rescales(norm: nn.Module, units: int, dim: int) -> bool:
    """Whether a norm has the same units as a layer that makes them along dimension `dim`.

    >>> rescales(nn.LayerNorm((5, 8)), 8, -1), rescales(nn.LayerNorm((8, 5, 5)), 8, -3)
    (True, True)
    >>> rescales(nn.LayerNorm(5), 8, -3)
    False
    """
    shape = getattr(norm, "normalized_shape", None)
    if shape is not None and len(shape) == 1:  # channels may come first
        return bool(shape[0] == units) and unit_dim(norm) == dim
    if shape is not None:
        return len(shape) >= -dim and bool(shape[dim] == units)
    return units_of(norm) in (None, units)


def outputs_per_unit(module: nn.Module, units: int) -> int:
    """How many outputs of a layer make one of so many units.

    >>> outputs_per_unit(nn.Linear(3, 8), units=4), outputs_per_unit(nn.LayerNorm(4), units=4)
    (2, 1)
    """
    made = (units_of(module) or units) if is_layer(module) else units
    return made // units if made % units == 0 else 1


def spread(
    module: nn.Module, name: str, values: Tensor, *, multiplied: bool = False
) -> Tensor | None:
    """One value per unit, shaped to multiply a parameter; None if no single unit owns it.

    Args:
        module: The layer or norm.
        name: The parameter's name in it.
        values: One for each unit.
        multiplied: Whether units may be products of several outputs of one layer.

    >>> import torch
    >>> spread(nn.Conv2d(3, 8, 5), "weight", torch.ones(8)).shape
    torch.Size([8, 1, 1, 1])
    >>> spread(nn.Embedding(100, 16), "weight", torch.ones(16)).shape
    torch.Size([1, 16])
    """
    if is_adapted(module):
        inside: Any = module.base_layer
        if not name.startswith(INSIDE):
            return None
        return spread(inside, name.removeprefix(INSIDE), values, multiplied=multiplied)
    if multiplied and (blocks := outputs_per_unit(module, len(values))) > 1:
        values = values.repeat(blocks)
    if isinstance(module, nn.PReLU) and module.num_parameters == 1:
        return None  # one slope shared by all units
    kind = kind_of(module) or (Kind() if is_activation(module) else None)
    return None if kind is None else kind.spread(module, name, values)


def input_weights(module: nn.Module) -> tuple[dict[str, nn.Parameter], int]:
    """The weights with which a layer reads its inputs, and their dimension that counts inputs.

    Output layers with one head per task have several weights.

    >>> weights, axis = input_weights(nn.ConvTranspose2d(3, 8, 5))
    >>> list(weights), axis
    (['weight'], 0)
    """
    kind = kind_of(module) or Kind()
    own = module.named_parameters(recurse=False)
    return {name: p for name, p in own if kind.reads_with(name)}, kind.input_axis(module)


def spread_inputs(module: nn.Module, weight: Tensor, values: Tensor) -> Tensor:
    """One value per input unit, shaped to multiply the weight that reads it.

    After flattening a unit is read at several positions; in a grouped convolution each group of
    outputs reads its own units.

    >>> import torch
    >>> layer = nn.Linear(6, 4)
    >>> spread_inputs(layer, layer.weight, torch.ones(3)).shape
    torch.Size([1, 6])
    """
    axis, groups = input_weights(module)[1], getattr(module, "groups", 1)
    values = values.to(weight.dtype)
    if axis == 1 and groups > 1:
        blocks = values.view(groups, 1, -1).repeat_interleave(len(weight) // groups, 1)
        blocks = blocks.flatten(0, 1)
        return blocks.view(*blocks.shape, *[1] * (weight.dim() - 2))
    per_input = values.repeat_interleave(weight.shape[axis] // len(values))
    return per_input.view([-1 if d == axis else 1 for d in range(weight.dim())])


def spread_columns(module: nn.Module, name: str, values: Tensor) -> Tensor | None:
    """One value per input unit, shaped to multiply a parameter; None if it reads no inputs.

    >>> import torch
    >>> layer = nn.Linear(6, 4)
    >>> spread_columns(layer, "weight", torch.ones(6)).shape
    torch.Size([1, 6])
    >>> spread_columns(layer, "bias", torch.ones(6)) is None
    True
    """
    weight = input_weights(module)[0].get(name)
    return None if weight is None else spread_inputs(module, weight, values)


def resize(module: nn.Module, *, units: int | None = None, inputs: int | None = None) -> None:
    """Set the number of units and inputs of a layer whose parameters were cut."""
    kind = kind_of(module)
    if kind is None:
        return
    sizes = (kind.unit_sizes, units), (kind.input_sizes, inputs)
    for name, size in [(name, size) for names, size in sizes for name in names]:
        if size is not None:
            setattr(module, name, size)


def has_computed_weight(module: nn.Module) -> bool:
    """Whether the layer's weight is computed before every call, as under weight_norm or pruning."""
    return is_parametrized(module) or any(name in module.__dict__ for name in ("weight", "bias"))


def stem(name: str) -> str:
    """The name of the tensor that a parameter is part of.

    >>> stem("weight_orig"), stem("weight_1"), stem("parametrizations.weight.original0")
    ('weight', 'weight', 'weight')
    """
    return name.removeprefix("parametrizations.").split(".")[0].split("_")[0]
