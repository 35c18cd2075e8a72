"""A site, and where the gate of a layer goes: behind the norms and activations it alone feeds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn

from .flow import (
    HOMOGENEOUS,
    KEEPS_ZERO,
    flattens,
    function_name,
    has_tensors,
    passes_units_on,
    pools,
    reads_units,
    role,
    sums_layers_only,
)
from .kinds import is_activation, is_layer, rescales, unit_dim, units_of
from .narrowing import can_narrow
from .norm import ContextNorm
from .products import multiplies_layers
from .wiring import Wiring

__all__ = ["Site", "place_gate", "readers_of"]


@dataclass(frozen=True)
class Site:
    """A place whose output a gate multiplies, and the modules whose parameters belong to it.

    Args:
        name: The first layer it owns, or the place the user named.
        place: The module behind which the gate sits, or in front of which if `in_front`. Empty if
            there is nothing to gate or observe.
        owns: The modules whose own parameters and statistics belong to the site.
        units: The number of units, along dimension `dim` of the output.
        dim: The dimension of the output that counts units.
        in_front: Whether the gate sits in front of `place` instead of behind it.
        at_readers: Whether the gate sits in front of every one of `readers`, of which `place` is the
            first. What they read are different sums of the same units: see `residual`.
        gated: Whether a gate multiplies the units. A norm behind a sum is observed but not gated.
        head: Whether it is an output layer.
        readers: The layers that read the units; `next-layer` relevance needs them.
        narrows: Whether units with gain 0 can be left out without changing anything else: nothing
            before the gate mixes units, nothing behind it turns zeros into numbers, and only
            `readers` see them.
        narrows_before_norm: The same for a gate before norm and activation.
        activation: The module that computes the last non-linearity, if it is a module.
        rescaled: Whether a norm without parameters sits between the layer and the gate: it would
            undo a gain folded into the layer.
        centred: Whether ContextNorms right behind its layers subtract the mean of the units, and any
            bias with it.
        columns: Layers that read nothing but these units, and whose columns share the availability
            of the units: in LoRA, rank i is row i of A and column i of B. Closed units of such a
            site rest: neither momentum nor decay moves them.
        multiplied: Whether a unit is a product, as in SwiGLU: of two layers, which the site both
            owns, or of two halves of one, which has twice as many outputs as the site has units.
        fixed: Whether its parameters never move, as at availability 0. They have no gradient while
            the gates are attached, except those of adapters.
        note: A remark shown by print(gates).
    """

    name: str
    place: str
    owns: tuple[str, ...]
    units: int
    dim: int = -1
    in_front: bool = False
    at_readers: bool = False
    gated: bool = True
    head: bool = False
    readers: tuple[str, ...] = ()
    narrows: bool = False
    narrows_before_norm: bool = False
    activation: str = ""
    rescaled: bool = False
    centred: bool = False
    columns: tuple[str, ...] = ()
    multiplied: bool = False
    fixed: bool = False
    note: str = ""


def place_gate(wiring: Wiring, index: int, *, is_head: bool) -> Site:
    """Find where the gate of the layer at `index` goes, and return its site."""
    calls = wiring.calls
    layer = calls[index]
    assert layer.module is not None
    units = units_of(layer.module) or 0
    if units == 0:
        raise ValueError(
            f"Layer {layer.name!r} has no units: give it at least one output, "
            "or name the sites as a mapping."
        )
    dim = unit_dim(layer.module)
    chain = [index] if is_head else _chain(wiring, index, units, dim)
    roles = [role(wiring, i) for i in chain]
    if "sum" in roles and not _is_hookable(wiring, chain[-1], layer.name):
        chain = chain[: roles.index("sum")]
    chain = _up_to_products(wiring, chain, units, dim)
    made, joins = units, _products(wiring, chain)
    if any(role(wiring, i) == "glu" for i in chain):
        units //= 2
    last = calls[chain[-1]]
    site = Site(
        layer.name,
        layer.name,
        tuple(calls[i].name for i in chain if has_tensors(calls[i].module)),
        units,
        dim,
        readers=readers_of(wiring, chain[-1], units, dim),
        rescaled=any(role(wiring, i) == "norm" and not has_tensors(calls[i].module) for i in chain),
        multiplied=bool(joins),
    )
    if not is_head:
        narrows, narrows_before_norm = can_narrow(wiring, chain, units, dim, outputs=made)
        site = replace(site, narrows=narrows, narrows_before_norm=narrows_before_norm)
    if last.module is not None and is_activation(last.module):
        site = replace(site, activation=last.name)
    if len(chain) > 1 and wiring.users(index) == [chain[1]] and wiring.times(layer.name) == 1:
        site = replace(site, centred=isinstance(calls[chain[1]].module, ContextNorm))
    end = _last_hookable(wiring, chain, layer.name)
    behind, tail = calls[chain[end]].name, [function_name(calls[i]) for i in chain[end + 1 :]]
    if all(name in HOMOGENEOUS for name in tail):
        return replace(site, place=behind)
    reader = _only_reader(wiring, chain[-1], units, dim) if wiring.times(layer.name) == 1 else None
    if reader is not None:
        flattened = unit_dim(calls[reader].module or layer.module) == -1
        return replace(site, place=calls[reader].name, in_front=True, dim=-1 if flattened else dim)
    functions = ", ".join(tail)
    if all(name in KEEPS_ZERO for name in tail):
        return replace(site, place=behind, note=f"gated before {functions}")
    raise ValueError(
        f"The gate of layer {layer.name!r} cannot be placed behind its {functions}: "
        "make that a module, such as nn.Sigmoid(), or name the sites as a mapping."
    )


def readers_of(wiring: Wiring, index: int, units: int, dim: int) -> tuple[str, ...]:
    """Every layer that reads the units made at `index`; empty if something mixes them first."""
    queue, readers, seen = wiring.users(index), [], set()
    while queue:
        current = queue.pop(0)
        if current in seen:
            continue
        seen.add(current)
        call = wiring.calls[current]
        if is_layer(call.module):
            if not reads_units(call.module, units, dim):
                return ()
            readers.append(call.name)
        elif (
            role(wiring, current) not in ("product", "glu", "other")
            or flattens(wiring, current)
            or pools(wiring, current, dim)
        ):
            queue.extend(wiring.users(current))
        else:
            return ()
    return tuple(dict.fromkeys(readers))


def _chain(wiring: Wiring, index: int, units: int, dim: int) -> list[int]:
    """The layer and what only it feeds, up to the last norm or activation.

    Sums belong to the chain if every summand is a layer that feeds nothing else.
    """
    chain, kept, current, outputs = [index], 1, index, units
    while len(users := wiring.users(current)) == 1 and current not in wiring.outputs:
        current = users[0]
        kind = role(wiring, current)
        module = wiring.calls[current].module
        if pools(wiring, current, dim):
            continue
        if kind == "other" or (kind == "sum" and not sums_layers_only(wiring, current)):
            break
        if kind == "product" and not multiplies_layers(wiring, current, units, dim):
            break
        if kind == "glu":
            if dim != -1 or units % 2 or units != outputs:
                break
            units //= 2
        if kind == "norm" and module is not None and not rescales(module, units, dim):
            break
        if kind == "transparent":
            continue
        chain.append(current)
        if kind != "sum":
            kept = len(chain)
    return chain[:kept]


def _products(wiring: Wiring, chain: list[int]) -> list[int]:
    """Where in the chain units are multiplied."""
    return [n for n, i in enumerate(chain) if role(wiring, i) in ("product", "glu")]


def _up_to_products(wiring: Wiring, chain: list[int], units: int, dim: int) -> list[int]:
    """The chain, or the part before its first product if no gate can sit behind the last."""
    joins, name = _products(wiring, chain), wiring.calls[chain[0]].name
    if not joins or _last_hookable(wiring, chain, name) >= joins[-1]:
        return chain
    halved = any(role(wiring, i) == "glu" for i in chain)
    reader = _only_reader(wiring, chain[-1], units // 2 if halved else units, dim)
    return chain if reader is not None and wiring.times(name) == 1 else chain[: joins[0]]


def _last_hookable(wiring: Wiring, chain: list[int], layer: str) -> int:
    """The last place in the chain behind which a gate can sit."""
    return max(n for n, i in enumerate(chain) if n == 0 or _is_hookable(wiring, i, layer))


def _is_hookable(wiring: Wiring, index: int, layer: str) -> bool:
    """Whether the call is a module that serves this layer only, and runs as often as it does."""
    module, name = wiring.calls[index].module, wiring.calls[index].name
    if module is None or wiring.times(name) != wiring.times(layer):
        return False
    calls = enumerate(wiring.calls)
    return all(_is_made_by(wiring, i, layer) for i, call in calls if call.module is module)


def _is_made_by(wiring: Wiring, index: int, layer: str) -> bool:
    """Whether the layer made the units of this call, alone or in a sum with other layers."""
    queue, seen = [index], set()
    while queue:
        current = queue.pop()
        call = wiring.calls[current]
        if call.name == layer and call.module is not None:
            return True
        if current not in seen and not is_layer(call.module):
            seen.add(current)
            queue.extend(call.inputs)
    return False


def _only_reader(wiring: Wiring, index: int, units: int, dim: int) -> int | None:
    """The one layer that reads this result, through dropout, pooling and flattening at most."""
    while len(users := wiring.users(index)) == 1 and index not in wiring.outputs:
        index = users[0]
        call = wiring.calls[index]
        attention = isinstance(call.module, nn.MultiheadAttention)
        if is_layer(call.module) and not attention and wiring.times(call.name) == 1:
            return index if reads_units(call.module, units, dim) else None
        if not passes_units_on(wiring, index, dim):
            return None
    return None
