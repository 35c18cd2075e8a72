"""How much of a model gates reach, and what contexts share all the same."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..anatomy.composite import own_parameters
from ..anatomy.sites import Site

__all__ = ["ungated", "warn_if_mostly_ungated", "warn_if_norms_are_shared"]


def ungated(model: nn.Module, sites: Sequence[Site]) -> dict[str, int]:
    """Parameters of modules that no gate reaches, by module, largest first.

    Heads do not count, nor norms behind a sum, whose units are gated before it.

    >>> from gateon.anatomy.sites import find_sites
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> ungated(model, find_sites(model, None))
    {}
    """
    reached = {name for site in sites if site.place or site.head for name in site.owns}
    left: dict[str, int] = {}
    for site in sites:
        for name in (name for name in site.owns if name not in reached):
            module = model.get_submodule(name)
            left[name] = sum(p.numel() for _, p in own_parameters(module) if p.requires_grad)
    return dict(sorted(left.items(), key=lambda item: -item[1]))


def warn_if_mostly_ungated(model: nn.Module, sites: Sequence[Site]) -> None:
    """Warn where most of what a model learns has no gate."""
    heads = {name for site in sites if site.head for name in site.owns}
    owned = {name for site in sites for name in site.owns if name not in heads}
    own = {p for name in owned for _, p in own_parameters(model.get_submodule(name))}
    learned = sum(p.numel() for p in own if p.requires_grad)
    left = ungated(model, sites)
    if not 2 * sum(left.values()) > learned:
        return
    notes = {name: site.note for site in sites for name in site.owns}
    largest = ", ".join(
        f"{name!r} ({count:,}, {notes[name]})" for name, count in list(left.items())[:3]
    )
    _warn(
        f"{sum(left.values()) / learned:.0%} of the parameters of {type(model).__name__} have no "
        f"gate, so that all contexts compute with them: {largest}. Each has an availability of "
        "its own; name sites= to gate more."
    )


def warn_if_norms_are_shared(model: nn.Module) -> None:
    """Warn where contexts share running statistics, which no availability protects."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if norms:
        _warn(
            f"{type(model).__name__} has {len(norms)} BatchNorm layers, whose running statistics all "
            "contexts share: each context forgets its own, and layers in front of them keep their "
            "full width in sub-networks. Call gateon.context_norms(model) first."
        )


def _warn(message: str) -> None:
    """Warn at the line outside of gateon that led here."""
    level, frame = 3, sys._getframe(2)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("gateon."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
