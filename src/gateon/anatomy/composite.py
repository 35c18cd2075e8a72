"""Layers that are made of several modules, and count as one: attention, adapters, graph layers."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrize import is_parametrized

from .adapters import is_adapted
from .norm import ContextNorm
from .parts import parts_of

__all__ = ["is_composite", "is_message_passing", "own_parameters"]

NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, ContextNorm)


def own_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """A module's own parameters, including those of the modules it is composed of, but no gates."""
    for name, parameter in module.named_parameters(recurse=is_composite(module)):
        if "context_gate" not in name:
            yield name, parameter


def is_composite(module: nn.Module) -> bool:
    """Whether the module is one layer made of several modules, such as attention or adapters."""
    if isinstance(module, NORMS) and parts_of(module):
        return True  # a norm with its activation inside, such as timm's BatchNormAct2d
    attention = isinstance(module, nn.MultiheadAttention)
    graph = is_message_passing(module)
    return attention or graph or is_adapted(module) or is_parametrized(module)


def is_message_passing(module: nn.Module | None) -> bool:
    """Whether the module is a layer of torch_geometric that makes so many channels."""
    bases = type(module).__mro__
    passing = any(
        base.__name__ == "MessagePassing" and base.__module__.startswith("torch_geometric")
        for base in bases
    )
    return passing and isinstance(getattr(module, "out_channels", None), int)
