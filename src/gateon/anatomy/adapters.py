"""Layers wrapped in adapters by PEFT: each counts as one layer, with the units of the layer inside.

PEFT need not be installed: its classes are recognised by name.
"""

from __future__ import annotations

from torch import nn

__all__ = ["INSIDE", "base_layer", "has_adapters", "is_adapted", "is_peft"]

INSIDE = "base_layer."  # prefix of the parameters of the wrapped layer


def is_peft(module: nn.Module | None, kind: str) -> bool:
    """Whether a module is an instance of a PEFT class.

    Args:
        module: Any module.
        kind: "PeftModel", "BaseTuner" or "BaseTunerLayer".

    >>> is_peft(nn.Linear(2, 3), "BaseTunerLayer")
    False
    """
    bases = type(module).__mro__
    return any(base.__name__ == kind and base.__module__.startswith("peft.") for base in bases)


def is_adapted(module: nn.Module | None) -> bool:
    """Whether a module is a layer wrapped in adapters, such as PEFT's lora.Linear."""
    inside = getattr(module, "base_layer", None)
    return is_peft(module, "BaseTunerLayer") and isinstance(inside, nn.Module)


def has_adapters(model: nn.Module) -> bool:
    """Whether PEFT decides which parameters of the model are trained."""
    return any(is_adapted(module) or is_peft(module, "PeftModel") for module in model.modules())


def base_layer(module: nn.Module) -> nn.Module:
    """The layer inside its adapters, or the module itself if it has none."""
    while is_adapted(module):
        module = module.base_layer  # type: ignore[assignment]
    return module
