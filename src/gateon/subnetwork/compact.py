"""The network of a context *is* its active sub-network: take it out, train or evaluate it, write it back.

A unit with gain 0 contributes nothing, receives nothing and changes nothing. Leaving it out is the
same mathematics at the square of the density of the cost. A site can be narrowed where nothing
between its layer and its readers mixes its units; elsewhere it stays at full width, with its gate.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..anatomy.contextual import as_context
from ..anatomy.kinds import Kind, input_weights, inputs_of, kind_of, resize, stem
from ..anatomy.norm import ContextNorm
from ..anatomy.sites import Site
from ..anatomy.wiring import outputs_on
from ..availability.ledgers import ParameterLedger, UnitLedger
from ..availability.observers import Tapped, Through
from ..availability.obstruct import Obstruction, Rules, obstruction_of
from ..gating.gate import Gate
from ..gating.gates import Gates, gates_of
from .fold import fold as folded

__all__ = [
    "Cut",
    "compact",
    "cut_for",
    "put_availability",
    "put_back",
    "spare_strided",
    "take_availability",
    "take_out",
]

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
        for axis in sorted(
            cut
        ):  # whole rows first: the columns are then taken from what is left of them
            tensor = tensor.index_select(axis, cut[axis])
        return (
            tensor.detach().contiguous(memory_format=torch.channels_last)
            if channels_last
            else tensor.detach()
        )

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


def compact(
    model: nn.Module, context: int, *, fold: bool = False, example: Any = None
) -> nn.Module:
    """The active sub-network of a context as a module of its own, of the same class.

    Args:
        model: a model with gates.
        context: which one.
        fold: False: with gates and one context. Train it as you like, then call its `write_back()`:
            what it learned is then in the whole model, which is switched to that context. If the
            model's updates are obstructed it has its part of the availabilities too:
            `small.obstruction.follow(optimizer)` before training. True: for deployment, in
            evaluation mode, with gains folded into weights and nothing of gateon inside; tied
            weights are untied where gains differ.
        example: one batch of input, for the result to be compared with the whole model: a
            ValueError if their outputs differ. A folded model of transformers is compared by its
            own `dummy_inputs` where none is given.

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
    context = as_context(context)
    if not 0 <= context < gates.contexts:
        raise IndexError(
            f"Context {context} does not exist: there are {gates.contexts}; add_context() adds one."
        )
    cut = cut_for(gates, context)
    small = take_out(gates, cut)
    if fold:
        folded(small.eval())
        example = _own_example(model) if example is None else example
    if example is not None:
        _check_same(gates, context, small, example)
    if fold:
        return small
    spare_strided(small)
    whole = obstruction_of(gates)
    if whole is not None:
        small.__dict__["obstruction"] = take_availability(whole, cut, small)
        _gates(small).orphaned = True  # until its obstruction follows an optimizer
    small.__dict__["write_back"] = partial(_write_back, gates, cut, small, whole)
    return small


def _own_example(model: nn.Module) -> Any:
    """The example of their input that models of transformers carry, if it fits."""
    try:
        example: Any = model.dummy_inputs
        outputs_on(model, example)
    except Exception:  # whatever a model makes of an example that is none
        return None
    return example


def _check_same(gates: Gates, context: int, small: nn.Module, example: Any) -> None:
    """Raise ValueError unless the sub-network has the outputs of the whole model in evaluation."""
    shown = gates.context
    gates.show(context)
    try:
        expected = outputs_on(gates.model, example)
    finally:
        gates.show(shown)
    got = outputs_on(small, example)
    for a, b in zip(expected, got, strict=True):
        scale = a.abs().max().item() if a.numel() else 0.0
        tolerance = math.sqrt(torch.finfo(a.dtype).eps) if a.is_floating_point() else 0.0
        difference = (a - b).abs().max().item() if a.numel() else 0.0
        if not difference <= tolerance * max(scale, 1e-6):
            raise ValueError(
                f"The sub-network of context {context} computes something else than the model: outputs differ by {difference:.2g} "
                f"of {scale:.2g}. Use the model with its gates, or compact(model, context) without fold."
            )


def _write_back(gates: Gates, cut: Cut, small: nn.Module, whole: Obstruction | None) -> None:
    if gates.learning != cut.context:
        gates.switch(cut.context)  # it is this context that has been learned
    put_back(gates, cut, small)
    if whole is not None:
        put_availability(whole, cut, small.__dict__["obstruction"])


def cut_for(gates: Gates, context: int, active: Mapping[str, Tensor] | None = None) -> Cut:
    """What of the model is active in a context; `active` fixes the units, where a training that began is gone on with."""
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
    memo: dict[
        int, object
    ] = {}  # deepcopy takes these instead of copying: the whole of a weight is never copied
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            memo[id(parameter)] = nn.Parameter(
                cut.take(name, parameter), requires_grad=parameter.requires_grad
            )
        for name, buffer in model.named_buffers():
            memo[id(buffer)] = cut.take(name, buffer)
        for module in (
            model.modules()
        ):  # weights computed by hooks are no leaves, and cannot be copied otherwise
            memo |= {
                id(t): t.detach().clone()
                for t in module.__dict__.values()
                if isinstance(t, Tensor) and not t.is_leaf
            }
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
    inner.resume(cut.context)
    for site in gates.sites.values():
        indices = cut.active.get(site.name)
        if indices is not None:
            for name in site.owns:
                resize(small.get_submodule(name), units=len(indices))
            for name in site.readers:
                reader = small.get_submodule(name)
                positions = (inputs_of(reader) or site.units) // site.units
                resize(reader, inputs=positions * len(indices))
    return small


def spare_strided(small: nn.Module) -> None:
    """Let 1 x 1 convolutions with a stride read fewer than eight channels in the plain layout only.

    In channels_last the backward pass of torch 2.13 writes beyond its memory there, on processors.
    """
    for module in small.modules():
        if (
            isinstance(module, nn.Conv2d)
            and module.kernel_size == (1, 1)
            and module.stride != (1, 1)
            and module.in_channels < 8
        ):
            weight = module.weight.data
            # contiguous() would leave its strides as they are
            module.weight.data = weight.flatten().clone().view(weight.shape)
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
    """The availabilities of the sub-network, for an optimizer of its own; relevance is still normalised over the whole layer.

    Where the whole is learning another context, they are what they will be after a switch to this
    one.
    """
    whole.take_on()
    part = Obstruction(_gates(small), whole.rules)
    switches = whole.gates.learning != cut.context
    for full, mine in zip(whole.ledgers(), part.ledgers(), strict=True):
        mine.advances = [0 if switches else count for count in full.advances]
        if isinstance(mine, ParameterLedger) and isinstance(full, ParameterLedger):
            mine.whole = dict(zip(mine.names, full.whole.values(), strict=True))
        elif isinstance(mine, UnitLedger) and isinstance(full, UnitLedger):
            mine.whole = full.whole
            if (
                isinstance(mine.observer, Tapped)
                and isinstance(full.observer, Tapped)
                and mine.observer.readers
            ):
                # Units left out of the next layer have outgoing weights too, which do not change
                # meanwhile.
                of_all = _part_of_ledger(cut, full, "").take("", full.observer.outgoing())
                mine.observer.rest = of_all - mine.observer.outgoing()
        for (name, *tensors), (_, *parts) in zip(full.entries(), mine.entries(), strict=True):
            for tensor, target in zip(tensors, parts, strict=True):
                target.copy_(_part_of_ledger(cut, full, name).take(name, tensor))
        if switches:
            mine.snapshot()
        mine.mark_plastic()
    part.keep_exact()
    return part


@torch.no_grad()
def put_availability(whole: Obstruction, cut: Cut, part: Obstruction) -> None:
    """Write availabilities back. What was left out was irrelevant all the while: its A grew by (1 + rate epsilon)^steps.

    However often this is called on the way, the result is the same to the bit: a parameter grows
    from what it was at the switch, a unit step by step.
    """
    for full, mine in zip(whole.ledgers(), part.ledgers(), strict=True):
        advances = zip(full.advances, mine.advances, strict=True)
        for (name, running, applied), (_, now, _), (before, after) in zip(
            full.entries(), mine.entries(), advances, strict=True
        ):
            _grow(running, applied, full, before, after, whole.rules)
            _part_of_ledger(cut, full, name).put(name, running, now)
            if whole.rules.apply == "step":
                applied.copy_(running)
        full.advances = list(mine.advances)
        full.mark_plastic()
    whole.steps += part.steps
    part.steps = 0


def _grow(
    running: Tensor,
    applied: Tensor,
    ledger: UnitLedger | ParameterLedger,
    before: int,
    after: int,
    rules: Rules,
) -> None:
    if isinstance(ledger, ParameterLedger) and rules.apply == "switch":
        running.copy_(applied)
        ledger.rule.idle(running, after)
    else:
        for _ in range(after - before):
            ledger.rule.idle(running, 1)


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
        raise ValueError(
            "This model has no gates, so that it has no sub-networks: attach() them first."
        )
    return gates


def _active_units(gates: Gates, context: int) -> dict[str, Tensor]:
    """Units whose gain is not zero, at every site that can be narrowed; one at least, so that no layer is empty."""
    found = {}
    for name, gain in gates.gain(context).items():
        if gates.sites[name].narrows and not gates.gates[name].off:
            indices = gain.nonzero().flatten()
            found[name] = (
                indices if len(indices) else torch.zeros(1, dtype=torch.long, device=gain.device)
            )
    return found


def _cut_outputs(cut: Cut, model: nn.Module, name: str, indices: Tensor, units: int) -> None:
    module = model.get_submodule(name)
    for part, parameter in module.named_parameters(recurse=False):
        axis = (kind_of(module) or Kind()).unit_axis(module, stem(part))
        if (
            axis is not None and parameter.shape[axis] == units
        ):  # a PReLU may have one slope for all
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


def _narrowed(site: Site, cut: Cut) -> Site:
    indices = cut.active.get(site.name)
    return site if indices is None else replace(site, units=len(indices))
