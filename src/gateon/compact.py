"""The network of a context *is* its active sub-network: take it out, train or evaluate it, write it back.

A unit with gain 0 contributes nothing, receives nothing and changes nothing. Leaving it out is the same mathematics at the square
of the density of the cost. A site can be narrowed where nothing between its layer and its readers mixes its units; elsewhere it
stays at full width, with its gate.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from .fold import fold as folded
from .gate import Gate
from .gates import Gates, gates_of
from .layers import input_weights
from .ledgers import ParameterLedger, UnitLedger
from .norm import ContextNorm
from .observers import Tapped, Through
from .obstruct import Obstruction, Rules, obstruction_of
from .sites import Site

__all__ = ["Cut", "compact", "cut_for", "put_availability", "put_back", "spare_strided", "take_availability", "take_out"]

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
        channels_last = tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)
        for axis in sorted(cut):  # whole rows first: the columns are then taken from what is left of them
            tensor = tensor.index_select(axis, cut[axis])
        return tensor.detach().contiguous(memory_format=torch.channels_last) if channels_last else tensor.detach()

    def put(self, name: str, whole: Tensor, part: Tensor) -> None:
        """Write a part back into its place."""
        cut = self.slices.get(name, {})
        if not cut:
            whole.copy_(part)
        elif len(cut) == 1:
            ((axis, indices),) = cut.items()
            whole.index_copy_(axis, indices, part)
        else:  # axes 0 and 1
            whole[cut[0][:, None], cut[1]] = part


def compact(model: nn.Module, context: int, *, fold: bool = False) -> nn.Module:
    """The active sub-network of a context as a module of its own, of the same class.

    Args:
        model: a model with gates.
        context: which one.
        fold: False: with gates and one context. Train it as you like, then call its `write_back()`: what it learned is then in the
            whole model. If the model's updates are obstructed it has its part of the availabilities too:
            `small.obstruction.follow(optimizer)` before training. True: for deployment, with gains folded into weights and nothing
            of gateon inside.

    >>> import gateon
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> gates = gateon.attach(model, contexts=3, density=0.5)
    >>> small = compact(model, context=1)
    >>> small[0].weight.shape, small[2].weight.shape
    (torch.Size([4, 4]), torch.Size([2, 4]))
    >>> gates.switch(1); torch.allclose(small(torch.ones(1, 4)), model(torch.ones(1, 4)))
    True
    """
    gates = _gates(model)
    if not 0 <= context < gates.contexts:
        raise IndexError(f"Context {context} does not exist: there are {gates.contexts}; add_context() adds one.")
    cut = cut_for(gates, context)
    small = take_out(gates, cut)
    if fold:
        return folded(small.eval())
    spare_strided(small)
    whole = obstruction_of(gates)
    if whole is not None:
        small.__dict__["obstruction"] = take_availability(whole, cut, small)
        _gates(small).orphaned = True  # until its obstruction follows an optimizer
    small.__dict__["write_back"] = partial(_write_back, gates, cut, small, whole)
    return small


def _write_back(gates: Gates, cut: Cut, small: nn.Module, whole: Obstruction | None) -> None:
    put_back(gates, cut, small)
    if whole is not None:
        put_availability(whole, cut, small.__dict__["obstruction"])


def cut_for(gates: Gates, context: int, active: Mapping[str, Tensor] | None = None) -> Cut:
    """What of the model is active in a context; `active` fixes the units, where a training that began is gone on with."""
    model = gates.model
    device = next(model.parameters()).device
    units = {k: v.to(device) for k, v in (_active_units(gates, context) if active is None else active).items()}
    cut = Cut(context, units)
    row = torch.tensor([context], device=device)
    for site in gates.sites.values():
        indices = units.get(site.name)
        if indices is not None:
            for name in site.owns:
                _cut_outputs(cut, model, name, indices, site.units)
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


def take_out(gates: Gates, cut: Cut) -> nn.Module:
    """A copy of the model that holds only what the cut says."""
    model = gates.model
    memo: dict[int, object] = {}  # deepcopy takes these instead of copying: the whole of a weight is never copied
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            memo[id(parameter)] = nn.Parameter(cut.take(name, parameter), requires_grad=parameter.requires_grad)
        for name, buffer in model.named_buffers():
            memo[id(buffer)] = cut.take(name, buffer)
    small: nn.Module = copy.deepcopy(model, memo)
    inner = _gates(small)
    inner.orphaned = False
    inner.sites = {name: _narrowed(site, cut) for name, site in inner.sites.items()}
    for module in small.modules():
        _drop_observers(module)
        if isinstance(module, Gate):
            module.site = _narrowed(module.site, cut)
            module.stop_observing()
            module.context = torch.zeros_like(module.context[:1])
        elif isinstance(module, ContextNorm):
            module.context = torch.zeros_like(module.context.reshape(-1)[0])
    inner.context = 0
    for site in gates.sites.values():
        indices = cut.active.get(site.name)
        if indices is not None:
            for name in site.owns:
                _resize_outputs(small.get_submodule(name), len(indices))
            for name in site.readers:
                _resize_inputs(small.get_submodule(name), site.units, len(indices))
    return small


def spare_strided(small: nn.Module) -> None:
    """Let 1 x 1 convolutions with a stride read fewer than eight channels in the plain layout only.

    In channels_last the backward pass of torch 2.13 writes beyond its memory there, on processors.
    """
    for module in small.modules():
        if isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1) and module.stride != (1, 1) and module.in_channels < 8:
            weight = module.weight.data
            module.weight.data = weight.flatten().clone().view(weight.shape)  # contiguous() would leave its strides as they are
            module.register_forward_pre_hook(_in_plain_layout)


def _in_plain_layout(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.contiguous() for x in args)


@torch.no_grad()
def put_back(gates: Gates, cut: Cut, small: nn.Module) -> None:
    """Write every parameter and statistic of the sub-network back into the whole."""
    whole = dict(gates.model.named_parameters()) | dict(gates.model.named_buffers())
    for name, part in [*small.named_parameters(), *small.named_buffers()]:
        cut.put(name, whole[name], part.detach())


def take_availability(whole: Obstruction, cut: Cut, small: nn.Module) -> Obstruction:
    """The availabilities of the sub-network, for an optimizer of its own; relevance is still normalised over the whole layer."""
    whole.take_on()
    part = Obstruction(_gates(small), whole.rules)
    for full, mine in zip(whole.ledgers(), part.ledgers(), strict=True):
        mine.advances = full.advances
        if isinstance(mine, ParameterLedger) and isinstance(full, ParameterLedger):
            mine.whole = dict(zip(mine.names, full.whole.values(), strict=True))
        elif isinstance(mine, UnitLedger) and isinstance(full, UnitLedger):
            mine.whole = full.whole
            if isinstance(mine.observer, Tapped) and isinstance(full.observer, Tapped) and mine.observer.readers:
                # Units left out of the next layer have outgoing weights too, which do not change meanwhile.
                of_all = _part_of_ledger(cut, full, "").take("", full.observer.outgoing())
                mine.observer.rest = of_all - mine.observer.outgoing()
        for (name, *tensors), (_, *parts) in zip(full.entries(), mine.entries(), strict=True):
            for tensor, target in zip(tensors, parts, strict=True):
                target.copy_(_part_of_ledger(cut, full, name).take(name, tensor))
        mine.mark_plastic()
    part.keep_exact()
    return part


@torch.no_grad()
def put_availability(whole: Obstruction, cut: Cut, part: Obstruction) -> None:
    """Write availabilities back. What was left out was irrelevant all the while: its A grew by (1 + rate epsilon)^steps.

    However often this is called on the way, the result is the same to the bit: a parameter grows from what it was at the switch, a
    unit step by step.
    """
    for full, mine in zip(whole.ledgers(), part.ledgers(), strict=True):
        for (name, running, applied), (_, now, _) in zip(full.entries(), mine.entries(), strict=True):
            _grow(running, applied, full, mine.advances, whole.rules)
            _part_of_ledger(cut, full, name).put(name, running, now)
            if whole.rules.apply == "step":
                applied.copy_(running)
        full.advances = mine.advances
        full.mark_plastic()
    whole.steps += part.steps
    part.steps = 0


def _grow(running: Tensor, applied: Tensor, ledger: UnitLedger | ParameterLedger, advances: int, rules: Rules) -> None:
    growth = 1 + ledger.rate * rules.epsilon
    if growth == 1:
        return
    if isinstance(ledger, ParameterLedger) and rules.apply == "switch":
        torch.mul(applied, growth**advances, out=running).clamp_(rules.floor, 1)
    else:
        for _ in range(advances - ledger.advances):
            running.mul_(growth).clamp_(rules.floor, 1)


def _part_of_ledger(cut: Cut, ledger: UnitLedger | ParameterLedger, name: str) -> Cut:
    """The cut of an availability: of a parameter it is that of the parameter; of units, that of the site."""
    if isinstance(ledger, ParameterLedger):
        return cut
    indices = cut.active.get(ledger.site.name)
    return Cut(cut.context, {}, {} if indices is None else {name: {0: indices}})


def _drop_observers(module: nn.Module) -> None:
    """Take away the hooks by which the whole model is observed."""
    for hooks in (module._forward_hooks, module._forward_pre_hooks):
        for key, hook in list(hooks.items()):
            method = hook.func if isinstance(hook, partial) else None
            if isinstance(getattr(method, "__self__", None), Through):
                del hooks[key]


def _gates(model: nn.Module) -> Gates:
    gates = gates_of(model)
    if gates is None:
        raise ValueError("This model has no gates, so that it has no sub-networks: attach() them first.")
    return gates


def _active_units(gates: Gates, context: int) -> dict[str, Tensor]:
    """Units whose gain is not zero, at every site that can be narrowed; one at least, so that no layer is empty."""
    found = {}
    for name, gain in gates.gain(context).items():
        if gates.sites[name].narrows and not gates.gates[name].off:
            indices = gain.nonzero().flatten()
            found[name] = indices if len(indices) else torch.zeros(1, dtype=torch.long, device=gain.device)
    return found


def _cut_outputs(cut: Cut, model: nn.Module, name: str, indices: Tensor, units: int) -> None:
    module = model.get_submodule(name)
    for part, parameter in module.named_parameters(recurse=False):
        axis = 1 if part == "weight" and input_weights(module)[1] == 0 else 0
        if parameter.shape[axis] == units:  # a PReLU may have one slope for all
            cut.slices.setdefault(f"{name}.{part}", {})[axis] = indices
    for part, buffer in module.named_buffers(recurse=False):
        if buffer.dim():
            cut.slices.setdefault(f"{name}.{part}", {})[buffer.dim() - 1] = indices


def _cut_inputs(cut: Cut, model: nn.Module, name: str, indices: Tensor, units: int) -> None:
    module = model.get_submodule(name)
    weights, axis = input_weights(module)
    for part, weight in weights.items():
        positions = weight.shape[axis] // units  # behind a flattening every unit is read at several
        spread = (indices[:, None] * positions + torch.arange(positions, device=indices.device)).flatten()
        cut.slices.setdefault(f"{name}.{part}", {})[axis] = spread


def _resize_outputs(module: nn.Module, units: int) -> None:
    if isinstance(module, nn.Linear):
        module.out_features = units
    elif isinstance(module, _ConvNd):
        module.out_channels = units
    elif isinstance(module, _NormBase | ContextNorm):
        module.num_features = units
    elif hasattr(module, "nf"):
        module.nf = units  # type: ignore[assignment]


def _resize_inputs(module: nn.Module, before: int, units: int) -> None:
    if isinstance(module, nn.Linear):
        module.in_features = module.in_features // before * units
    elif isinstance(module, _ConvNd):
        module.in_channels = units
    elif hasattr(module, "nx"):
        module.nx = units  # type: ignore[assignment]


def _narrowed(site: Site, cut: Cut) -> Site:
    indices = cut.active.get(site.name)
    return site if indices is None else replace(site, units=len(indices))
