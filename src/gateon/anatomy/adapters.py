"""Layers wrapped in adapters by PEFT: each counts as one layer, with the units of the layer inside.

PEFT need not be installed: its classes are recognised by name.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = [
    "INSIDE",
    "base_layer",
    "check_trainable",
    "has_adapters",
    "is_adapted",
    "is_peft",
    "is_quantised",
]

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


def is_quantised(model: nn.Module) -> bool:
    """Whether weights of the model are held in 8 or 4 bit.

    >>> is_quantised(nn.Linear(2, 3))
    False
    """
    in_integers = any(p.dtype in (torch.int8, torch.uint8) for p in model.parameters())
    return in_integers or any(getattr(m, "is_quantized", False) for m in (model, *model.children()))


def check_trainable(model: nn.Module) -> None:
    """Refuse a model whose weights are held in 8 or 4 bit, unless adapters are trained instead.

    >>> check_trainable(nn.Linear(2, 3))
    """
    if is_quantised(model) and not has_adapters(model):
        raise ValueError(
            "This model is loaded in 8 or 4 bit, and such weights cannot be trained: "
            "call gateon.hf.lora(model), or load it without quantization."
        )


def base_layer(module: nn.Module) -> nn.Module:
    """The layer inside its adapters, or the module itself if it has none."""
    while is_adapted(module):
        module = module.base_layer  # type: ignore[assignment]
    return module
