"""How methods put modules of their own into a model, at the places where gates would sit; and norms that follow the context."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ...anatomy.contextual import Contextual
from ...anatomy.norm import ContextNorm
from ...anatomy.sites import Site

__all__ = ["follow_norms", "install"]

BEHIND, IN_FRONT = "unit_module", "unit_module_in_front"


def install(model: nn.Module, site: Site, module: nn.Module) -> None:
    """Let a module act on the units of a site: it becomes a child of the module at that place, and a hook calls it.

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
    return (module(output[0]), *output[1:]) if isinstance(output, tuple) else module(output)


def _in_front(place: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (place.get_submodule(IN_FRONT)(args[0]), *args[1:])


class _Norms(Contextual):
    """Switches the ContextNorms of a model, which without gates nobody else does."""

    def __init__(self, norms: list[ContextNorm]) -> None:
        super().__init__()
        self.__dict__["norms"] = norms  # not children: they would be saved twice

    @property
    def contexts(self) -> int:
        return min(len(norm.running_mean) for norm in self.__dict__["norms"])

    def add_context(self) -> None:
        for norm in self.__dict__["norms"]:
            norm.add_context()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "context":
            for norm in self.__dict__["norms"]:
                norm.context = torch.tensor(value, device=norm.running_mean.device)


def follow_norms(model: nn.Module) -> None:
    """Let the ContextNorms of a model that has no gates switch with the learner."""
    norms = [module for module in model.modules() if isinstance(module, ContextNorm)]
    if (
        norms
    ):  # a child of one of them: a child of the model would be called if that is an nn.Sequential
        norms[0].add_module("switch", _Norms(norms))
