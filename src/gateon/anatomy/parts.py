"""The modules inside a layer that are its own, and not put there by gateon."""

from __future__ import annotations

from torch import nn

__all__ = ["parts_of"]

OURS = ("context_", "unit_module")  # how the names of gates and of what methods install begin


def parts_of(module: nn.Module) -> list[str]:
    """The names of a module's own children.

    >>> parts_of(nn.Sequential(nn.ReLU()))
    ['0']
    """
    return [name for name in module._modules if not name.startswith(OURS)]
