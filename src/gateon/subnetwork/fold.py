"""A sub-network for deployment: gains folded into weights, nothing of gateon left inside."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn
from torch.nn.utils import remove_spectral_norm, remove_weight_norm
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.prune import remove as unprune
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from ..anatomy.adapters import has_adapters
from ..anatomy.composite import own_parameters
from ..anatomy.flow import TRANSPARENT
from ..anatomy.kinds import (
    has_computed_weight,
    input_weights,
    is_layer,
    is_norm,
    kind_of,
    spread,
    spread_inputs,
    unit_dim,
    units_of,
)
from ..anatomy.norm import ContextNorm
from ..anatomy.parts import parts_of
from ..anatomy.sites import Site
from ..gating.gate import Gate
from ..gating.gates import gates_of

__all__ = ["fold"]

BATCH_NORMS = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
HOMOGENEOUS = (nn.ReLU, nn.LeakyReLU, nn.PReLU)


@torch.no_grad()
def fold(model: nn.Module) -> nn.Module:
    """Fold the gates of a model with one context into its weights, in place.

    Its outputs in evaluation stay the same.

    >>> import gateon
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    >>> gates = gateon.attach(model, density=0.5)
    >>> before = model(torch.ones(1, 4))
    >>> torch.allclose(fold(model)(torch.ones(1, 4)), before), gateon.gates_of(model) is None
    (True, True)
    """
    gates = gates_of(model)
    if gates is None or gates.contexts != 1:
        raise ValueError(
            "Only a model with the gates of one context can be folded: "
            "take it out with compact(model, context)."
        )
    if has_adapters(model):
        raise ValueError(
            "Gains cannot be folded into layers with adapters around them: deploy the model with "
            "its gates, or merge the ranks of LoRA with gateon.hf.merge(model, context)."
        )
    given, model = model, gates.model  # which may be inside a wrapper
    for module in list(model.modules()):
        _fix_weights(module)
    tied = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    names = {
        name
        for gate in gates.gates.values()
        for name in (gate.site.place, *gate.site.owns, *gate.site.readers)
    }
    untied = [_untie(model.get_submodule(name), tied) for name in names]
    if any(untied) and getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        model.config.tie_word_embeddings = False  # type: ignore[union-attr]
    for gate in gates.gates.values():
        _fold_gate(model, gate)
    dims = {name: _positions(model, site) for site in gates.sites.values() for name in site.owns}
    gates.detach()
    for name, module in list(model.named_modules()):
        if isinstance(module, ContextNorm):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, _plain_norm(module, dims.get(name, 1)))
    return given


def _fix_weights(module: nn.Module) -> None:
    """Make weights that are computed before every call plain, as they are in evaluation."""
    if is_parametrized(module):
        # By hand: torch's removal takes the weight away from the class, which the module shares
        # with the one it is a copy of.
        computed: list[str] = list(module.parametrizations)  # type: ignore[arg-type]
        values = {name: getattr(module, name).detach().clone() for name in computed}
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
        for name, value in values.items():
            module.register_parameter(name, nn.Parameter(value))
    for hook in list(module._forward_pre_hooks.values()):
        if isinstance(hook, WeightNorm):
            remove_weight_norm(module, hook.name)
        elif isinstance(hook, SpectralNorm):
            remove_spectral_norm(module, hook.name)
        elif isinstance(hook, BasePruningMethod):
            unprune(module, hook._tensor_name)


def _untie(module: nn.Module, tied: Counter[int]) -> bool:
    """Untie the parameters of a module: gains are folded into its own, not into others'."""
    untied = False
    for name, parameter in list(module.named_parameters(recurse=False)):
        if tied[id(parameter)] > 1:
            tied[id(parameter)] -= 1
            untied = True
            setattr(
                module,
                name,
                nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad),
            )
    return untied


def _fold_gate(model: nn.Module, gate: Gate) -> None:
    site, gain = gate.site, gate.gain()[0]
    place = model.get_submodule(site.place)
    if gate.off:
        return
    if model.get_submodule(site.name)._modules.get("context_gate") is gate and is_layer(
        model.get_submodule(site.name)
    ):
        # the gate sits right behind the layer
        _scale_outputs(model.get_submodule(site.name), gain, site)
    elif site.narrows or site.in_front:
        for name in (site.place,) if site.in_front and not site.at_readers else site.readers:
            _scale_inputs(model.get_submodule(name), gain, site)
    elif is_norm(place) and getattr(place, "weight", None) is not None and _is_homogeneous(place):
        _scale_outputs(place, gain, site)
    elif isinstance(place, HOMOGENEOUS) and not site.multiplied:
        owned = [model.get_submodule(name) for name in site.owns]
        norms = [module for module in owned if is_norm(module)]
        if site.rescaled or (norms and getattr(norms[-1], "weight", None) is None):
            raise ValueError(_refusal(site))
        makers = norms[-1:] or [module for module in owned if is_layer(module)]
        if any(
            units_of(maker) != site.units for maker in makers if is_layer(maker)
        ):  # a sum that spreads one unit over all
            raise ValueError(_refusal(site))
        for maker in makers:
            _scale_outputs(maker, gain, site)
    else:
        raise ValueError(_refusal(site))


def _is_homogeneous(norm: nn.Module) -> bool:
    """Whether what a norm has inside passes a gain on: nothing, or ReLU and the like."""
    parts = (norm.get_submodule(name) for name in parts_of(norm))
    return all(isinstance(part, (*HOMOGENEOUS, *TRANSPARENT)) for part in parts)


def _refusal(site: Site) -> str:
    return (
        f"The gate of site {site.name!r} has no weights to fold into: deploy the model with its "
        "gates, compact(model, context)."
    )


def _check_plain(module: nn.Module, site: Site) -> None:
    """Refuse a layer whose weight a hook of the user's computes: what is folded would be lost."""
    if has_computed_weight(module):
        raise ValueError(_refusal(site))


def _scale_outputs(module: nn.Module, gain: Tensor, site: Site) -> None:
    _check_plain(module, site)
    kind, found = kind_of(module), False
    for name, parameter in own_parameters(module):
        inside = is_norm(module) and "." in name  # of an activation, which passes gains on
        shaped = None if inside else spread(module, name, gain)
        if shaped is not None:
            found = True
            offset = kind.scale_offset(module) if kind is not None and name == "weight" else 0.0
            parameter.add_(offset).mul_(shaped.to(parameter.dtype)).sub_(offset)
    if not found:
        raise ValueError(_refusal(site))


def _scale_inputs(reader: nn.Module, gain: Tensor, site: Site) -> None:
    _check_plain(reader, site)
    weights = input_weights(reader)[0]
    if not weights:
        raise ValueError(_refusal(site))
    for weight in weights.values():
        weight.mul_(spread_inputs(reader, weight, gain))


def _positions(model: nn.Module, site: Site) -> int:
    """Over how many dimensions a unit of the site is spread: 0 for a Linear, 2 for a Conv2d."""
    layers = [m for m in (model.get_submodule(name) for name in site.owns) if is_layer(m)]
    return -1 - unit_dim(layers[0]) if layers else 0


def _plain_norm(norm: ContextNorm, positions: int) -> nn.Module:
    tracked = norm.statistics == "context"
    affine = norm.weight is not None
    kind = (None if norm.behind else norm.replaces) or BATCH_NORMS[positions]
    plain = kind(
        norm.num_features,
        eps=norm.eps,
        momentum=norm.momentum,
        affine=affine,
        track_running_stats=tracked,
    )
    plain = plain.to(norm.running_mean)
    if norm.weight is not None and norm.bias is not None:
        plain.weight.copy_(norm.weight)
        plain.bias.copy_(norm.bias)
    if tracked and plain.running_mean is not None and plain.running_var is not None:
        plain.running_mean.copy_(norm.running_mean[0])
        plain.running_var.copy_(norm.running_var[0])
    plain.train(norm.training)
    return nn.Sequential(plain, *map(norm.get_submodule, norm.behind)) if norm.behind else plain
