"""Sites: where a network can be gated, and which parameters each place owns."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .kinds import (
    inputs_of,
    is_activation,
    is_layer,
    is_norm,
    narrows,
    own_parameters,
    rescales,
    unit_dim,
    units_of,
)
from .norm import ContextNorm, UnitLength
from .wiring import Call, Wiring, is_leaf, trace

__all__ = ["Site", "find_sites", "matching"]

# f(g a) = g f(a) for g >= 0: a gate before such a function is the same as one behind it.
HOMOGENEOUS = {"relu", "leaky_relu", "prelu", "rrelu"}
# f(0) = 0: a closed gate before such a function still silences the unit.
KEEPS_ZERO = HOMOGENEOUS | {
    "gelu",
    "silu",
    "tanh",
    "elu",
    "selu",
    "celu",
    "relu6",
    "hardtanh",
    "hardswish",
    "mish",
}
ACTIVATIONS = KEEPS_ZERO | {"sigmoid", "softplus", "hardsigmoid", "logsigmoid", "square"}
NORMS = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize"}
SUMS = {"add", "iadd", "radd", "sub", "isub"}
# What may stand between a unit and whoever reads it without mixing units.
TRANSPARENT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.Identity)
POOLS = tuple(
    getattr(nn, f"{kind}Pool{d}d")
    for kind in ("Max", "Avg", "AdaptiveMax", "AdaptiveAvg")
    for d in (1, 2, 3)
)
POOL_NAMES = {
    f"{kind}_pool{d}d" for kind in ("max", "avg", "adaptive_max", "adaptive_avg") for d in (1, 2, 3)
}


@dataclass(frozen=True)
class Site:
    """A place in the network whose output a gate multiplies, with the modules whose parameters it owns.

    Args:
        name: the first layer it owns, or the place the user named.
        place: the module behind which the gate sits; in front of which, if `in_front`. Empty:
            nothing to gate or observe.
        owns: names of the modules whose own parameters and statistics belong to the site.
        units: how many units the place has, along dimension `dim` of its output.
        gated: whether a gate multiplies the units. A norm behind a sum, for one, is only observed.
        head: whether it is an output layer.
        readers: the layers that read the units; `next-layer` relevance needs them.
        narrows: whether leaving out units whose gain is 0 leaves everything else as it is: nothing
            before the gate mixes units, nothing behind it makes something out of nothing, and only
            `readers` see it.
        narrows_before_norm: the same for a gate before norm and activation.
        activation: the module that makes the units' last non-linearity, if it is a module.
        rescaled: whether a norm without parameters stands between the layer and the gate: it would
            undo gains of the layer.
        centred: whether a ContextNorm right behind the layer takes the mean of its units away
            again, and any bias with it.
        fixed: its parameters do not move at all, as at availability 0, and have no gradient while
            the gates are attached; those of adapters do.
        note: what a reader of print(gates) should know.
    """

    name: str
    place: str
    owns: tuple[str, ...]
    units: int
    dim: int = -1
    in_front: bool = False
    gated: bool = True
    head: bool = False
    readers: tuple[str, ...] = ()
    narrows: bool = False
    narrows_before_norm: bool = False
    activation: str = ""
    rescaled: bool = False
    centred: bool = False
    fixed: bool = False
    note: str = ""


def find_sites(
    model: nn.Module,
    sites: str | Sequence[str] | Sequence[Site] | Mapping[str, str | Sequence[str]] | None,
    example: Any = None,
    *,
    head: bool = False,
) -> list[Site]:
    """The sites of a model: all that can be found, those given, those that match patterns, or a mapping place -> owned layers.

    Without `sites` every parameter of the model belongs to one; the last layers are heads, gated
    only if `head`.
    """
    if isinstance(sites, Mapping):
        named = [_named_site(model, place, owned) for place, owned in sites.items()]
        if len({site.place for site in named}) != max(1, len(named)):
            raise ValueError(
                "sites= names no place, or one place twice: give each gate a module of its own."
            )
        return named
    given = (
        []
        if sites is None or isinstance(sites, str)
        else [site for site in sites if isinstance(site, Site)]
    )
    if given:
        return given
    found = _discover(model, trace(model, example), gate_heads=head)
    if sites is None:
        return found
    patterns = [sites] if isinstance(sites, str) else [str(pattern) for pattern in sites]
    if not patterns:
        raise ValueError("sites= holds no pattern: leave it out to gate every hidden layer.")
    layers = [s for s in found if s.place and any(is_layer(model.get_submodule(o)) for o in s.owns)]
    chosen: dict[str, Site] = {}
    for pattern in patterns:
        names = {name: s for s in layers for name in (s.name, s.place, *s.owns)}
        for name in matching(pattern, list(names), "layer"):
            chosen[names[name].name] = replace(names[name], gated=True, head=False)
    return [chosen[s.name] for s in layers if s.name in chosen]


def matching(pattern: str, names: Iterable[str], kind: str) -> list[str]:
    """The names that match a shell-like pattern; a pattern that matches nothing is an error that shows the nearest names.

    >>> matching("fc*", ["fc1", "fc2", "out"], "layer")
    ['fc1', 'fc2']
    """
    names = list(names)
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.3) or names[:3]
        raise ValueError(
            f"No {kind} matches {pattern!r}: write a pattern for names such as {', '.join(map(repr, near))}."
        )
    return found


def _named_site(model: nn.Module, place: str, owned: str | Sequence[str]) -> Site:
    modules = dict(model.named_modules())
    places = matching(place, [n for n in modules if n], "module")
    if len(places) > 1:
        raise ValueError(
            f"{place!r} matches {len(places)} modules, {places[0]!r} and {places[1]!r} among them: name one."
        )
    place = places[0]
    patterns = [owned] if isinstance(owned, str) else list(owned)
    leaves = [name for name, module in modules.items() if name and is_leaf(module)]
    owns = tuple(
        dict.fromkeys(name for pattern in patterns for name in matching(pattern, leaves, "module"))
    )
    candidates = (place, *owns) if is_layer(modules[place]) else (*owns, place)
    maker = next((modules[name] for name in candidates if units_of(modules[name])), None)
    if maker is None:
        raise ValueError(
            f"Site {place!r} owns no layer that has units: name its Linear, convolution or embedding."
        )
    return Site(place, place, owns, units_of(maker) or 0, unit_dim(maker))


def _discover(model: nn.Module, wiring: Wiring, *, gate_heads: bool) -> list[Site]:
    modules = dict(model.named_modules())
    found: dict[tuple[str, bool], Site] = {}
    heads = _heads(wiring)
    seen: set[str] = set()
    for index, call in enumerate(wiring.calls):
        if call.module is None or call.name in seen or not is_layer(call.module):
            continue
        seen.add(call.name)
        site = _place(wiring, index, is_head=call.name in heads)
        if call.name in heads:
            site = replace(site, head=True, gated=gate_heads)
        other = found.get((site.place, site.in_front))
        if (
            other is not None
        ):  # several layers summed before one norm or activation, like the embeddings of BERT
            site = replace(other, owns=tuple(dict.fromkeys(other.owns + site.owns)))
        found[site.place, site.in_front] = site
    sites = [_kept_whole(site) if _is_tied(model, site) else site for site in found.values()]
    owned = {name for site in sites for name in site.owns}
    for name, module in modules.items():
        own = list(own_parameters(module))
        inside_owned = any(name.startswith(o + ".") for o in owned if is_leaf(modules[o]))
        if not own or name in owned or inside_owned:
            continue
        if is_norm(module) and wiring.times(name) > 0:
            index = next(i for i, call in enumerate(wiring.calls) if call.name == name)
            units, dim, note = units_of(module) or 0, unit_dim(module), "norm behind a sum"
            readers = _readers(wiring, index, units, dim)
            sites.append(
                Site(name, name, (name,), units, dim, gated=False, readers=readers, note=note)
            )
        else:
            sites.append(Site(name, "", (name,), 0, gated=False, note="no units of its own"))
    if not any(site.gated for site in sites):
        raise ValueError(
            f"{type(model).__name__} has no hidden layer to gate: name sites=, or pass head=True to gate its output."
        )
    order = {call.name: i for i, call in reversed(list(enumerate(wiring.calls)))}
    return sorted(sites, key=lambda site: order.get(site.name, len(order)))


def _is_tied(model: nn.Module, site: Site) -> bool:
    """Whether a parameter that narrowing would cut has another name too."""
    names = [p for _, p in model.named_parameters(remove_duplicate=False)]
    cut = [
        p for name in (*site.owns, *site.readers) for p in model.get_submodule(name).parameters()
    ]
    return any(sum(p is other for other in names) > 1 for p in cut)


def _kept_whole(site: Site) -> Site:
    return replace(site, narrows=False, narrows_before_norm=False)


def _heads(wiring: Wiring) -> set[str]:
    """Layers whose result reaches the output through no other layer."""
    heads, queue, seen = set(), list(wiring.outputs), set()
    while queue:
        index = queue.pop()
        if index in seen:
            continue
        seen.add(index)
        call = wiring.calls[index]
        if is_layer(call.module):
            heads.add(call.name)
        else:
            queue.extend(call.inputs)
    return heads


def _place(wiring: Wiring, index: int, *, is_head: bool) -> Site:
    """Where the gate of the layer at `index` goes: behind the norms and activations that only it feeds."""
    calls = wiring.calls
    layer = calls[index]
    assert layer.module is not None
    units = units_of(layer.module) or 0
    if units == 0:
        raise ValueError(
            f"Layer {layer.name!r} has no units: give it at least one output, or name the sites as a mapping."
        )
    dim = unit_dim(layer.module)
    chain = [index] if is_head else _chain(wiring, index, units, dim)
    if "sum" in {_kind(wiring, i) for i in chain} and not _hookable(wiring, chain[-1], layer.name):
        chain = chain[: next(n for n, i in enumerate(chain) if _kind(wiring, i) == "sum")]
    owns = tuple(calls[i].name for i in chain if _has_tensors(calls[i].module))
    last = calls[chain[-1]]
    site = Site(
        layer.name, layer.name, owns, units, dim, readers=_readers(wiring, chain[-1], units, dim)
    )
    site = replace(
        site,
        rescaled=any(
            _kind(wiring, i) == "norm" and not _has_tensors(calls[i].module) for i in chain
        ),
    )
    if not is_head:
        narrows, narrows_before_norm = _narrows(wiring, chain, units, dim)
        site = replace(site, narrows=narrows, narrows_before_norm=narrows_before_norm)
    if last.module is not None and is_activation(last.module):
        site = replace(site, activation=last.name)
    if len(chain) > 1 and wiring.users(index) == [chain[1]] and wiring.times(layer.name) == 1:
        site = replace(site, centred=isinstance(calls[chain[1]].module, ContextNorm))
    end = max(n for n, i in enumerate(chain) if n == 0 or _hookable(wiring, i, layer.name))
    behind, tail = calls[chain[end]].name, chain[end + 1 :]
    if all(_function_name(wiring, i) in HOMOGENEOUS for i in tail):
        return replace(site, place=behind)
    reader = _only_reader(wiring, chain[-1], units, dim) if wiring.times(layer.name) == 1 else None
    if reader is not None:
        flattened = unit_dim(calls[reader].module or layer.module) == -1
        return replace(site, place=calls[reader].name, in_front=True, dim=-1 if flattened else dim)
    unhookable = ", ".join(_function_name(wiring, i) for i in tail)
    if all(_function_name(wiring, i) in KEEPS_ZERO for i in tail):
        return replace(site, place=behind, note=f"gated before {unhookable}")
    raise ValueError(
        f"The gate of layer {layer.name!r} has nowhere to sit behind its {unhookable}: "
        "make that a module, such as nn.Sigmoid(), or name the sites as a mapping."
    )


def _chain(wiring: Wiring, index: int, units: int, dim: int) -> list[int]:
    """The layer and every norm, activation, or sum with other layers, that only it feeds, up to the last norm or activation."""
    chain, kept, current = [index], 1, index
    while len(users := wiring.users(current)) == 1 and current not in wiring.outputs:
        current = users[0]
        kind = _kind(wiring, current)
        module = wiring.calls[current].module
        if _pools(wiring, current, dim):
            continue
        if kind == "other" or (kind == "sum" and not _sums_layers_only(wiring, current)):
            break
        if kind == "norm" and module is not None and not rescales(module, units, dim):
            break
        if kind == "transparent":
            continue
        chain.append(current)
        if kind != "sum":
            kept = len(chain)
    return chain[:kept]


def _kind(wiring: Wiring, index: int) -> str:
    call = wiring.calls[index]
    if isinstance(call.module, TRANSPARENT) or (
        call.module is None and call.name in {"dropout", "contiguous"}
    ):
        return "transparent"
    if is_norm(call.module) or (call.module is None and call.name in NORMS):
        return "norm"
    if is_activation(call.module) or (call.module is None and call.name in ACTIVATIONS):
        return "activation"
    return "sum" if call.module is None and call.name in SUMS else "other"


def _sums_layers_only(wiring: Wiring, index: int) -> bool:
    """Whether every summand is a layer that feeds nothing else, or such a sum: a residual connection is not."""

    def belongs(i: int) -> bool:
        inner = is_layer(wiring.calls[i].module) or (
            _kind(wiring, i) == "sum" and _sums_layers_only(wiring, i)
        )
        return inner and wiring.users(i) == [index]

    return all(belongs(i) for i in wiring.calls[index].inputs)


def _hookable(wiring: Wiring, index: int, layer: str) -> bool:
    """A module that runs as often as the layer does, each time on what that layer made: else it serves other layers too."""
    call = wiring.calls[index]
    if call.module is None or wiring.times(call.name) != wiring.times(layer):
        return False
    return all(
        _made_by(wiring, i, layer)
        for i, other in enumerate(wiring.calls)
        if other.module is call.module
    )


def _made_by(wiring: Wiring, index: int, layer: str) -> bool:
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


def _function_name(wiring: Wiring, index: int) -> str:
    call = wiring.calls[index]
    return (
        call.name
        if call.module is None
        else type(call.module).__name__.lower().replace("leakyrelu", "leaky_relu")
    )


def _only_reader(wiring: Wiring, index: int, units: int, dim: int) -> int | None:
    """The single layer that reads this call's result, through nothing but dropout, pooling and flattening."""
    while len(users := wiring.users(index)) == 1 and index not in wiring.outputs:
        index = users[0]
        call = wiring.calls[index]
        if (
            is_layer(call.module)
            and not isinstance(call.module, nn.MultiheadAttention)
            and wiring.times(call.name) == 1
        ):
            return index if _reads_apart(call.module, units, dim) else None
        if (
            _kind(wiring, index) != "transparent"
            and not _flattens(wiring, index)
            and not _pools(wiring, index, dim)
        ):
            return None
    return None


def _flattens(wiring: Wiring, index: int) -> bool:
    call = wiring.calls[index]
    if isinstance(call.module, nn.Flatten):
        return call.module.start_dim == 1
    return call.module is None and call.name in {"flatten", "flatten_to_size"}


def _pools(wiring: Wiring, index: int, dim: int) -> bool:
    """Whether the call pools positions of a convolution's channels; behind a Linear it would pool units."""
    call = wiring.calls[index]
    return dim != -1 and (
        isinstance(call.module, POOLS) or (call.module is None and call.name in POOL_NAMES)
    )


def _reads_apart(reader: nn.Module | None, units: int, dim: int) -> bool:
    """Whether each input of the reader is one unit, or, behind a flattening of positions, one unit at one of them."""
    inputs = inputs_of(reader) or units
    return inputs == units or (dim != -1 and inputs % units == 0)


def _readers(wiring: Wiring, index: int, units: int, dim: int) -> tuple[str, ...]:
    """Every layer that reads the units made at `index`, through whatever keeps them apart; none if something mixes them."""
    queue, readers, seen = wiring.users(index), [], set()
    while queue:
        current = queue.pop(0)
        if current in seen:
            continue
        seen.add(current)
        call = wiring.calls[current]
        if is_layer(call.module) and _reads_apart(call.module, units, dim):
            readers.append(call.name)
        elif not is_layer(call.module) and (
            _kind(wiring, current) != "other"
            or _flattens(wiring, current)
            or _pools(wiring, current, dim)
        ):
            queue.extend(wiring.users(current))
        else:
            return ()
    return tuple(dict.fromkeys(readers))


def _narrows(wiring: Wiring, chain: list[int], units: int, dim: int) -> tuple[bool, bool]:
    """For a gate at the end of the chain and for one at its start: can the units it closes be left out?"""
    summed = [_summed(wiring, i) for i in chain]
    makers = {chain[0], *(layer for layers in summed for layer in layers)}
    fits = all(_is_maker(wiring, i, units) for i in makers) and all(
        _shows_all_summands(wiring, i) for i in chain
    )
    private = fits and _read_by_layers_only(wiring, chain[-1], units, dim)
    rest = [(wiring.calls[i], layers) for i, layers in zip(chain[1:], summed[1:], strict=True)]
    apart = all(layers or _acts_on_each_unit(call) for call, layers in rest)
    keeps_zero = all(_keeps_zero(call) for call, _ in rest)
    return private and apart, private and keeps_zero


def _is_maker(wiring: Wiring, index: int, units: int) -> bool:
    """Whether the call makes so many units, of which any can be left out, and makes them once."""
    module, name = wiring.calls[index].module, wiring.calls[index].name
    return (
        narrows(module)
        and module is not None
        and wiring.times(name) == 1
        and units_of(module) == units
    )


def _shows_all_summands(wiring: Wiring, index: int) -> bool:
    """Whether calls make all that is summed here, if anything is: a parameter of every unit would not be narrowed with them."""
    inputs = wiring.calls[index].inputs
    return _kind(wiring, index) != "sum" or (
        len(inputs) > 1 and all(_shows_all_summands(wiring, i) for i in inputs)
    )


def _summed(wiring: Wiring, index: int) -> list[int]:
    """The layers whose results are summed here, which all belong to the site: a closed unit is left out of each. None elsewhere."""
    if _kind(wiring, index) != "sum":
        return []
    return [layer for i in wiring.calls[index].inputs for layer in (_summed(wiring, i) or [i])]


def _read_by_layers_only(wiring: Wiring, index: int, units: int, dim: int) -> bool:
    """Whether what leaves `index` reaches only layers that read each unit apart, through nothing but dropout and pools."""
    queue = [index]
    while queue:
        current = queue.pop()
        users = wiring.users(current)
        if current in wiring.outputs or not users:
            return False
        for user in users:
            call = wiring.calls[user]
            if is_layer(call.module):
                if (
                    not narrows(call.module)
                    or wiring.times(call.name) > 1
                    or not _reads_apart(call.module, units, dim)
                ):
                    return False
            elif isinstance(call.module, nn.AlphaDropout) or call.name == "flatten_to_size":
                return False  # makes something out of nothing; would no longer fit
            elif (
                _kind(wiring, user) == "transparent"
                or _flattens(wiring, user)
                or _pools(wiring, user, dim)
            ):
                queue.append(user)
            else:
                return False
    return True


def _acts_on_each_unit(call: Call) -> bool:
    if call.module is None:
        return call.name in ACTIVATIONS
    return is_activation(call.module) or _has_statistics_apart(call.module)


def _has_statistics_apart(module: nn.Module | None) -> bool:
    """A norm of each unit alone without statistics that contexts share: those of units left out would stand still."""
    return isinstance(module, ContextNorm) or (
        isinstance(module, _BatchNorm) and module.running_mean is None
    )


def _keeps_zero(call: Call) -> bool:
    """Whether a unit that is 0 for every sample stays 0."""
    if _has_statistics_apart(call.module):
        return getattr(call.module, "weight", None) is None
    if call.module is None:
        return call.name in KEEPS_ZERO
    names = {
        "relu",
        "leakyrelu",
        "gelu",
        "silu",
        "tanh",
        "elu",
        "selu",
        "celu",
        "hardtanh",
        "relu6",
        "hardswish",
        "mish",
    }
    return isinstance(call.module, UnitLength) or type(call.module).__name__.lower() in names


def _has_tensors(module: nn.Module | None) -> bool:
    """Whether the module has parameters or statistics of its own."""
    return module is not None and any(
        True for tensors in (module.parameters(), module.buffers()) for _ in tensors
    )
