"""A sub-network for deployment: gains folded into weights, norms of one context, nothing of gateon left inside."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from .gate import Gate
from .gates import gates_of
from .layers import input_weights, is_layer, is_norm, spread, units_of
from .norm import ContextNorm
from .sites import Site

__all__ = ["fold"]

BATCH_NORMS = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
HOMOGENEOUS = (nn.ReLU, nn.LeakyReLU, nn.PReLU)


@torch.no_grad()
def fold(model: nn.Module) -> nn.Module:
    """Fold the gates of a model that has one context into its weights, in place; its outputs in evaluation stay the same.

    >>> import gateon
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    >>> gates = gateon.attach(model, density=0.5)
    >>> before = model(torch.ones(1, 4))
    >>> torch.allclose(fold(model)(torch.ones(1, 4)), before), gateon.gates_of(model) is None
    (True, True)
    """
    gates = gates_of(model)
    if gates is None or gates.contexts != 1:
        raise ValueError("Only a model with the gates of one context can be folded: take it out with compact(model, context).")
    for gate in gates.gates.values():
        _fold_gate(model, gate)
    dims = {name: _positions(model, site) for site in gates.sites.values() for name in site.owns}
    gates.detach()
    for name, module in list(model.named_modules()):
        if isinstance(module, ContextNorm):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, _plain_norm(module, dims.get(name, 1)))
    return model


def _fold_gate(model: nn.Module, gate: Gate) -> None:
    site, gain = gate.site, gate.gain()[0]
    place = model.get_submodule(site.place)
    if gate.off:
        return
    if model.get_submodule(site.name)._modules.get("context_gate") is gate and is_layer(model.get_submodule(site.name)):
        _scale_outputs(model.get_submodule(site.name), gain)  # the gate sits right behind the layer
    elif site.narrows or site.in_front:
        for name in (site.place,) if site.in_front else site.readers:
            _scale_inputs(model.get_submodule(name), gain)
    elif is_norm(place) and getattr(place, "weight", None) is not None:
        _scale_outputs(place, gain)
    elif isinstance(place, HOMOGENEOUS):
        owned = [model.get_submodule(name) for name in site.owns]
        norms = [module for module in owned if is_norm(module)]
        if site.rescaled or (norms and getattr(norms[-1], "weight", None) is None):
            raise ValueError(_refusal(site))
        makers = norms[-1:] or [module for module in owned if is_layer(module)]
        if any(units_of(maker) != site.units for maker in makers if is_layer(maker)):  # a sum that spreads one unit over all
            raise ValueError(_refusal(site))
        for maker in makers:
            _scale_outputs(maker, gain)
    else:
        raise ValueError(_refusal(site))


def _refusal(site: Site) -> str:
    return f"The gate of site {site.name!r} has no weights to fold into: deploy the model with its gates, compact(model, context)."


def _scale_outputs(module: nn.Module, gain: Tensor) -> None:
    for name, parameter in module.named_parameters(recurse=isinstance(module, nn.MultiheadAttention)):
        shaped = spread(module, name, gain)
        if shaped is not None and "context_gate" not in name:
            parameter.mul_(shaped.to(parameter.dtype))


def _scale_inputs(reader: nn.Module, gain: Tensor) -> None:
    weights, axis = input_weights(reader)
    groups = getattr(reader, "groups", 1)
    for weight in weights.values():
        if axis == 1 and groups > 1:  # each group of outputs reads its own units
            of_group = gain.to(weight.dtype).view(groups, 1, -1).repeat_interleave(len(weight) // groups, 1).flatten(0, 1)
            weight.mul_(of_group.view(*of_group.shape, *[1] * (weight.dim() - 2)))
            continue
        per_input = gain.repeat_interleave(weight.shape[axis] // len(gain)).to(weight.dtype)
        weight.mul_(per_input.view([-1 if d == axis else 1 for d in range(weight.dim())]))


def _positions(model: nn.Module, site: Site) -> int:
    """Over how many dimensions a unit of the site is spread: 0 for a Linear, 2 for a Conv2d."""
    layers = [m for m in (model.get_submodule(name) for name in site.owns) if isinstance(m, _ConvNd)]
    return len(layers[0].kernel_size) if layers else 0


def _plain_norm(norm: ContextNorm, positions: int) -> nn.Module:
    tracked = norm.statistics == "context"
    affine = norm.weight is not None
    kind = norm.replaces or BATCH_NORMS[positions]
    plain = kind(norm.num_features, eps=norm.eps, momentum=norm.momentum, affine=affine, track_running_stats=tracked)
    plain = plain.to(norm.running_mean)
    if norm.weight is not None and norm.bias is not None:
        plain.weight.copy_(norm.weight)
        plain.bias.copy_(norm.bias)
    if tracked and plain.running_mean is not None and plain.running_var is not None:
        plain.running_mean.copy_(norm.running_mean[0])
        plain.running_var.copy_(norm.running_var[0])
    return plain.train(norm.training)
