"""How methods put modules of their own into a model, at the places where gates would sit."""

from __future__ import annotations

from typing import Any

from torch import nn

from ...anatomy.norm import follow_norms
from ...anatomy.recurrent import on_units
from ...anatomy.sites import Site

__all__ = ["follow_norms", "install"]

BEHIND, IN_FRONT = "unit_module", "unit_module_in_front"


def install(model: nn.Module, site: Site, module: nn.Module) -> None:
    """Let a module act on the units of a site, as a child of the module at that place.

    >>> import torch
    >>> from gateon.anatomy.sites import find_sites
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> install(model, find_sites(model, None)[0], nn.Threshold(1e9, 7.0))
    >>> model[1](torch.ones(1, 3))
    tensor([[7., 7., 7.]])
    """
    place = model.get_submodule(site.place)
    module.train(place.training)
    if site.in_front:
        place.add_module(IN_FRONT, module)
        place.register_forward_pre_hook(_in_front)
    else:
        place.add_module(BEHIND, module)
        place.register_forward_hook(_behind)


# Hooks find the module through the one they are called with, so that copies of a model use their
# own.


def _behind(place: nn.Module, args: Any, output: Any) -> Any:
    module = place.get_submodule(BEHIND)
    return on_units(place, output, module)


def _in_front(place: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (place.get_submodule(IN_FRONT)(args[0]), *args[1:])
