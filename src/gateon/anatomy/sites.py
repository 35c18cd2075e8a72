"""Sites: where a network can be gated, and which parameters belong to each place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from torch import nn

from .composite import own_parameters
from .kinds import is_layer, is_norm, unit_dim, units_of
from .placement import Site, place_gate, readers_of
from .products import join_halves
from .residual import stage_sites
from .wiring import Wiring, is_leaf, trace

__all__ = ["Residual", "Site", "find_sites", "matching"]

Residual = Literal["branch", "stage"]


def find_sites(
    model: nn.Module,
    sites: str | Sequence[str] | Sequence[Site] | Mapping[str, str | Sequence[str]] | None,
    example: Any = None,
    *,
    head: bool = False,
    residual: Residual = "branch",
) -> list[Site]:
    """Find the sites of a model.

    Args:
        model: The network.
        sites: None for all sites, to one of which every parameter then belongs; a pattern or
            several for those that match; a mapping from a place to the layers it owns; or sites.
        example: One batch of input, for models that cannot be traced without data.
        head: Whether to gate the output layers too.
        residual: "stage" gives all layers whose results are summed in a stage of a residual network
            one gate, where that lets the stage be narrowed; "branch" gives each its own.

    >>> [site.name for site in find_sites(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), None)]
    ['0', '1']
    """
    if residual not in get_args(Residual):
        raise ValueError(f'residual must be "branch" or "stage", got {residual!r}.')
    if isinstance(sites, Mapping):
        named = [_named_site(model, place, owned) for place, owned in sites.items()]
        if len({site.place for site in named}) != max(1, len(named)):
            raise ValueError(
                "sites= names no place, or one place twice: give each gate its own module."
            )
        return named
    if sites is not None and not isinstance(sites, str):
        given = [site for site in sites if isinstance(site, Site)]
        if given:
            return given
    wiring = join_halves(trace(model, example))
    found = _discover(model, wiring, gate_heads=head, residual=residual)
    if sites is None:
        return found
    patterns = [sites] if isinstance(sites, str) else [str(pattern) for pattern in sites]
    if not patterns:
        raise ValueError("sites= is empty: leave it out to gate every hidden layer.")
    layers = [s for s in found if s.place and any(is_layer(model.get_submodule(o)) for o in s.owns)]
    chosen: dict[str, Site] = {}
    for pattern in patterns:
        names = {name: s for s in layers for name in (s.name, s.place, *s.owns)}
        for name in matching(pattern, list(names), "layer"):
            chosen[names[name].name] = replace(names[name], gated=True, head=False)
    return [chosen[s.name] for s in layers if s.name in chosen]


def matching(pattern: str, names: Iterable[str], kind: str) -> list[str]:
    """The names that match a shell-like pattern; ValueError with the closest names if none does.

    >>> matching("fc*", ["fc1", "fc2", "out"], "layer")
    ['fc1', 'fc2']
    """
    names = list(names)
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.3) or names[:3]
        raise ValueError(
            f"No {kind} matches {pattern!r}: use a pattern for names such as "
            f"{', '.join(map(repr, near))}."
        )
    return found


def _named_site(model: nn.Module, place: str, owned: str | Sequence[str]) -> Site:
    """The site at a place the user named."""
    modules = dict(model.named_modules())
    places = matching(place, [n for n in modules if n], "module")
    if len(places) > 1:
        raise ValueError(
            f"{place!r} matches {len(places)} modules, {places[0]!r} and {places[1]!r} "
            "among them: name one."
        )
    place = places[0]
    patterns = [owned] if isinstance(owned, str) else list(owned)
    leaves = [name for name, module in modules.items() if name and is_leaf(module)]
    matches = (name for pattern in patterns for name in matching(pattern, leaves, "module"))
    owns = tuple(dict.fromkeys(matches))
    candidates = (place, *owns) if is_layer(modules[place]) else (*owns, place)
    maker = next((modules[name] for name in candidates if units_of(modules[name])), None)
    if maker is None:
        raise ValueError(
            f"Site {place!r} owns no layer with units: name its Linear, convolution or embedding."
        )
    return Site(place, place, owns, units_of(maker) or 0, unit_dim(maker))


def _discover(
    model: nn.Module, wiring: Wiring, *, gate_heads: bool, residual: Residual
) -> list[Site]:
    """All sites of a model, in the order in which their layers run."""
    stages = stage_sites(wiring) if residual == "stage" else {}
    sites = _sites_of_layers(wiring, stages, gate_heads=gate_heads)
    sites = [_never_narrowed(site) if _is_tied(model, site) else site for site in sites]
    sites += _sites_of_the_rest(model, wiring, {name for site in sites for name in site.owns})
    if not any(site.gated for site in sites):
        raise ValueError(
            f"{type(model).__name__} has no hidden layer to gate: name sites=, "
            "or pass head=True to gate its output."
        )
    order = {call.name: i for i, call in reversed(list(enumerate(wiring.calls)))}
    return sorted(sites, key=lambda site: order.get(site.name, len(order)))


def _sites_of_layers(wiring: Wiring, stages: Mapping[str, Site], *, gate_heads: bool) -> list[Site]:
    """One site for every layer, or for several whose sum is normalised or activated together.

    Layers that write to one of `stages` have its site.
    """
    found: dict[tuple[str, bool], Site] = {}
    heads = _heads(wiring)
    seen: set[str] = set()
    for index, call in enumerate(wiring.calls):
        if call.module is None or call.name in seen or not is_layer(call.module):
            continue
        seen.add(call.name)
        site = stages.get(call.name) or place_gate(wiring, index, is_head=call.name in heads)
        if call.name in heads:
            site = replace(site, head=True, gated=gate_heads)
        other = found.get((site.place, site.in_front))
        if other is not None:  # like the embeddings of BERT, which are summed before one norm
            site = replace(
                other,
                owns=tuple(dict.fromkeys(other.owns + site.owns)),
                narrows=other.narrows and site.narrows,
                narrows_before_norm=other.narrows_before_norm and site.narrows_before_norm,
            )
        found[site.place, site.in_front] = site
    return list(found.values())


def _sites_of_the_rest(model: nn.Module, wiring: Wiring, owned: set[str]) -> list[Site]:
    """Sites without a gate for the parameters that no layer's site owns."""
    modules = dict(model.named_modules())
    sites = []
    for name, module in modules.items():
        own = list(own_parameters(module))
        inside_owned = any(name.startswith(o + ".") for o in owned if is_leaf(modules[o]))
        if not own or name in owned or inside_owned:
            continue
        if is_norm(module) and wiring.times(name) > 0:
            index = next(i for i, call in enumerate(wiring.calls) if call.name == name)
            units, dim, note = units_of(module) or 0, unit_dim(module), "norm behind a sum"
            readers = readers_of(wiring, index, units, dim)
            sites.append(
                Site(name, name, (name,), units, dim, gated=False, readers=readers, note=note)
            )
        else:
            note = "experts, not gated" if _holds_experts(module) else "no units of its own"
            sites.append(Site(name, "", (name,), 0, gated=False, note=note))
    return sites


def _holds_experts(module: nn.Module) -> bool:
    """Whether a module has one matrix for each of several experts, which see different tokens."""
    own = [p for p in module.parameters(recurse=False) if p.dim() == 3 and min(p.shape) > 1]
    return len(own) > 1 and len({len(p) for p in own}) == 1


def _is_tied(model: nn.Module, site: Site) -> bool:
    """Whether a parameter that narrowing would cut is shared under another name."""
    everything = [p for _, p in model.named_parameters(remove_duplicate=False)]
    names = (*site.owns, *site.readers)
    cut = [p for name in names for p in model.get_submodule(name).parameters()]
    return any(sum(p is other for other in everything) > 1 for p in cut)


def _never_narrowed(site: Site) -> Site:
    return replace(site, narrows=False, narrows_before_norm=False)


def _heads(wiring: Wiring) -> set[str]:
    """The layers whose results reach the output without passing through another layer."""
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
