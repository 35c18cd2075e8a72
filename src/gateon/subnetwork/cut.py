"""The cut of a context: which part of every tensor of a model is in its sub-network.

A unit with gain 0 contributes nothing, receives nothing and changes nothing. A site can be narrowed
if nothing between its layer and its readers mixes its units; any other stays at full width, with
its gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..anatomy.kinds import Kind, input_weights, kind_of, outputs_per_unit, stem
from ..anatomy.norm import ContextNorm
from ..anatomy.sites import Site
from ..gating.gate import Gate
from ..gating.gates import Gates, gates_of

__all__ = ["Cut", "cut_for", "part_shapes"]

Slices = dict[int, Tensor]  # which indices of which axis


@dataclass
class Cut:
    """Which part of every tensor of a model is in the sub-network of one context.

    Args:
        context: which one.
        active: by site, the indices of the units that take part; only of sites that are narrowed.
        slices: by name of a parameter or buffer, the indices along each axis that is cut.
    """

    context: int
    active: dict[str, Tensor]
    slices: dict[str, Slices] = field(default_factory=dict)

    def take(self, name: str, tensor: Tensor) -> Tensor:
        """A copy of the part of the tensor that is in the sub-network."""
        cut = self.slices.get(name, {})
        if not cut:
            return tensor.detach().clone()
        channels_last = (
            tensor.dim() == 4
            and not tensor.is_contiguous()
            and tensor.is_contiguous(memory_format=torch.channels_last)
        )
        for axis in sorted(cut):  # rows first: columns are then taken from what is left of them
            tensor = tensor.index_select(axis, cut[axis].to(tensor.device))
        return (
            tensor.detach().contiguous(memory_format=torch.channels_last)
            if channels_last
            else tensor.detach()
        )

    def put(self, name: str, whole: Tensor, part: Tensor) -> None:
        """Write a part back into its place."""
        cut = {axis: at.to(whole.device) for axis, at in self.slices.get(name, {}).items()}
        part = part.to(whole.device)
        if not cut:
            whole.copy_(part)
        elif len(cut) == 1:
            ((axis, indices),) = cut.items()
            whole.index_copy_(axis, indices, part)
        else:  # axes 0 and 1
            whole[cut[0][:, None], cut[1]] = part


def cut_for(gates: Gates, context: int, active: Mapping[str, Tensor] | None = None) -> Cut:
    """What of a model is active in a context.

    Args:
        gates: of the model.
        context: which one.
        active: the units of each site, to go on with a training that began with them.
    """
    model = gates.model
    device = next(model.parameters()).device
    units = {
        k: v.to(device)
        for k, v in (_active_units(gates, context) if active is None else active).items()
    }
    cut = Cut(context, units)
    row = torch.tensor([context], device=device)
    for site in gates.sites.values():
        indices = units.get(site.name)
        if indices is not None:
            for name in site.owns:
                _cut_outputs(cut, model, name, indices, site)
            for name in site.readers:
                _cut_inputs(cut, model, name, indices, site.units)
    for name, module in model.named_modules():
        indices = units.get(module.site.name) if isinstance(module, Gate) else None
        if isinstance(module, Gate) and module.weight is not None:
            cut.slices[f"{name}.weight"] = {0: row} | ({} if indices is None else {1: indices})
        elif isinstance(module, ContextNorm):
            for buffer in ("running_mean", "running_var"):
                cut.slices.setdefault(f"{name}.{buffer}", {})[0] = row
    return cut


def part_shapes(
    model: nn.Module, twin: nn.Module, context: int, active: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The parameters of the sub-network with these active units, without numbers.

    Args:
        model: with gates.
        twin: the same without numbers, with as many contexts as are asked for.
        context: of the sub-network.
        active: its units, by site.
    """
    gates = copy(gates_of(model))
    assert gates is not None
    gates.model = twin
    cut = cut_for(gates, context, active)
    return {
        name: nn.Parameter(cut.take(name, p), p.requires_grad)
        for name, p in twin.named_parameters()
    }


def _active_units(gates: Gates, context: int) -> dict[str, Tensor]:
    """Units whose gain is not 0 at the sites that can be narrowed; at least one of each."""
    found = {}
    for name, gain in gates.gain(context).items():
        if gates.sites[name].narrows and not gates.gates[name].off:
            indices = gain.nonzero().flatten()
            found[name] = (
                indices if len(indices) else torch.zeros(1, dtype=torch.long, device=gain.device)
            )
    return found


def _cut_outputs(cut: Cut, model: nn.Module, name: str, indices: Tensor, site: Site) -> None:
    module, units = model.get_submodule(name), site.units
    if site.multiplied and (blocks := outputs_per_unit(module, units)) > 1:
        indices = torch.cat([indices + block * units for block in range(blocks)])
        units *= blocks
    for part, parameter in module.named_parameters(recurse=False):
        axis = (kind_of(module) or Kind()).unit_axis(module, stem(part))
        # A PReLU may have one slope for all units.
        if axis is not None and parameter.shape[axis] == units:
            cut.slices.setdefault(f"{name}.{part}", {})[axis] = indices
    for part, buffer in module.named_buffers(recurse=False):
        if buffer.dim():
            cut.slices.setdefault(f"{name}.{part}", {})[buffer.dim() - 1] = indices


def _cut_inputs(cut: Cut, model: nn.Module, name: str, indices: Tensor, units: int) -> None:
    module = model.get_submodule(name)
    weights, axis = input_weights(module)
    for part, weight in weights.items():
        positions = weight.shape[axis] // units  # behind a flattening every unit is read at several
        spread = (
            indices[:, None] * positions + torch.arange(positions, device=indices.device)
        ).flatten()
        cut.slices.setdefault(f"{name}.{part}", {})[axis] = spread
