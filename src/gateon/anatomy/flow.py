"""What each call of a forward pass does with units: pass them on, mix them, sum or read them."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .kinds import inputs_of, is_activation, is_layer, is_norm
from .norm import ContextNorm, UnitLength
from .parts import parts_of
from .wiring import Call, Wiring

__all__ = [
    "HOMOGENEOUS",
    "KEEPS_ZERO",
    "SUMS",
    "TRANSPARENT",
    "acts_on_each_unit",
    "flattens",
    "function_name",
    "has_tensors",
    "keeps_zero",
    "passes_units_on",
    "pools",
    "reads_units",
    "role",
    "sums_layers_only",
]

# f(g a) = g f(a) for g >= 0: a gate before such a function equals one behind it.
HOMOGENEOUS = {"relu", "leaky_relu", "prelu", "rrelu"}
# f(0) = 0: a closed gate before such a function still silences the unit.
ZERO_AT_ZERO = {
    "gelu", "silu", "tanh", "elu", "selu", "celu", "relu6", "hardtanh", "hardswish", "mish"
}  # fmt: skip
KEEPS_ZERO = HOMOGENEOUS | ZERO_AT_ZERO
KEEPS_ZERO_MODULES = {"relu", "leakyrelu"} | ZERO_AT_ZERO  # class names in lower case
ACTIVATIONS = KEEPS_ZERO | {"sigmoid", "softplus", "hardsigmoid", "logsigmoid", "square"}
NORMS = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize"}
SUMS = {"add", "iadd", "radd", "sub", "isub"}
PRODUCTS = {"mul", "imul", "rmul", "multiply"}
# Modules that pass units on without mixing them.
TRANSPARENT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.Identity)
POOLS = tuple(
    getattr(nn, f"{kind}Pool{d}d")
    for kind in ("Max", "Avg", "AdaptiveMax", "AdaptiveAvg")
    for d in (1, 2, 3)
)
POOL_NAMES = {
    f"{kind}_pool{d}d" for kind in ("max", "avg", "adaptive_max", "adaptive_avg") for d in (1, 2, 3)
}


def role(wiring: Wiring, index: int) -> str:
    """What a call is: "transparent", "norm", "activation", "sum", "product", "glu" or "other".

    A "glu" multiplies one half of the units by the other.

    >>> from .wiring import trace
    >>> wiring = trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout()))
    >>> [role(wiring, i) for i in range(4)]
    ['other', 'other', 'activation', 'transparent']
    """
    call = wiring.calls[index]
    is_function = call.module is None
    if isinstance(call.module, TRANSPARENT):
        return "transparent"
    if is_function and call.name in {"dropout", "contiguous"}:
        return "transparent"
    if is_norm(call.module) or (is_function and call.name in NORMS):
        return "norm"
    if is_activation(call.module) or (is_function and call.name in ACTIVATIONS):
        return "activation"
    if isinstance(call.module, nn.GLU):
        return "glu" if call.module.dim == -1 else "other"
    if is_function and call.name in PRODUCTS and len(call.inputs) == 2:
        return "product"
    if is_function and call.name == "glu":
        return "glu"
    return "sum" if is_function and call.name in SUMS else "other"


def flattens(wiring: Wiring, index: int) -> bool:
    """Whether the call flattens everything but the batch dimension."""
    call = wiring.calls[index]
    if isinstance(call.module, nn.Flatten):
        return call.module.start_dim == 1
    return call.module is None and call.name in {"flatten", "flatten_to_size"}


def pools(wiring: Wiring, index: int, dim: int) -> bool:
    """Whether the call pools the positions of channels; behind a Linear it would pool units."""
    call = wiring.calls[index]
    by_name = call.module is None and call.name in POOL_NAMES
    return dim != -1 and (isinstance(call.module, POOLS) or by_name)


def passes_units_on(wiring: Wiring, index: int, dim: int) -> bool:
    """Whether the call is dropout, pooling or flattening: what follows reads the same units."""
    transparent = role(wiring, index) == "transparent"
    return transparent or flattens(wiring, index) or pools(wiring, index, dim)


def reads_units(reader: nn.Module | None, units: int, dim: int) -> bool:
    """Whether each input of the reader is one unit, possibly at one of several positions."""
    inputs = inputs_of(reader) or units
    return inputs == units or (dim != -1 and inputs % units == 0)


def sums_layers_only(wiring: Wiring, index: int) -> bool:
    """Whether every summand is a layer, or a sum of layers, that feeds nothing else.

    A residual connection is not such a sum.
    """

    def belongs(i: int) -> bool:
        nested = role(wiring, i) == "sum" and sums_layers_only(wiring, i)
        return (is_layer(wiring.calls[i].module) or nested) and wiring.users(i) == [index]

    return all(belongs(i) for i in wiring.calls[index].inputs)


def acts_on_each_unit(call: Call) -> bool:
    """Whether the call computes each unit from that unit alone, or from its two factors."""
    if _multiplies(call):
        return True
    if call.module is None:
        return call.name in ACTIVATIONS
    return is_activation(call.module) or _has_separate_statistics(call.module)


def keeps_zero(call: Call) -> bool:
    """Whether a unit that is 0 for every sample stays 0."""
    if _multiplies(call):
        return True
    if _has_separate_statistics(call.module):
        plain = call.module is not None and not parts_of(call.module)
        return plain and getattr(call.module, "weight", None) is None
    if call.module is None:
        return call.name in KEEPS_ZERO
    name = type(call.module).__name__.lower()
    return isinstance(call.module, UnitLength) or name in KEEPS_ZERO_MODULES


def _multiplies(call: Call) -> bool:
    """Whether the call makes units by multiplying others."""
    by_name = call.module is None and call.name in {*PRODUCTS, "glu"}
    return by_name or isinstance(call.module, nn.GLU)


def has_tensors(module: nn.Module | None) -> bool:
    """Whether the module has parameters or buffers."""
    if module is None:
        return False
    return any(True for tensors in (module.parameters(), module.buffers()) for _ in tensors)


def function_name(call: Call) -> str:
    """The name of a function, or of the module that computes it: "relu" for nn.ReLU()."""
    if call.module is None:
        return call.name
    return type(call.module).__name__.lower().replace("leakyrelu", "leaky_relu")


def _has_separate_statistics(module: nn.Module | None) -> bool:
    """Whether the module normalises each unit alone, with no statistics that contexts share.

    Shared statistics of units left out of a sub-network would not be updated.
    """
    if isinstance(module, ContextNorm):
        parts = [module.get_submodule(name) for name in module.behind]
        passes = (isinstance(part, TRANSPARENT) or is_activation(part) for part in parts)
        return all(passes) and not any(has_tensors(part) for part in parts)
    if module is not None and parts_of(module):
        return False
    return isinstance(module, _BatchNorm) and module.running_mean is None
