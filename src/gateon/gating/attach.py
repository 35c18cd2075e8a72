"""Principle 1, gated context selectivity: `attach` gives a model its gates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ..anatomy.adapters import check_trainable
from ..anatomy.kinds import is_layer, unit_dim
from ..anatomy.shards import check_unsharded
from ..anatomy.sites import Residual, Site, find_sites
from .coverage import warn_if_mostly_ungated
from .gate import Gate
from .gates import Gates
from .hooks import install, watch_passes
from .ranks import RankGate, can_select, compute_open
from .reads import Read
from .start import Start, initial_row, matching_gates, shares_of

__all__ = ["attach"]


def attach(
    model: nn.Module,
    contexts: int = 1,
    *,
    density: float | Mapping[str, float] = 0.25,
    start: Start = "random",
    sites: str | Sequence[str] | Sequence[Site] | Mapping[str, str | Sequence[str]] | None = None,
    head: bool = False,
    residual: Residual = "branch",
    example: Any = None,
    power: int = 1,
    width: float = 1.0,
    steepness: float = 1.0,
    shared: str | Sequence[str] = (),
    in_turn: bool = False,
    before_norm: bool = False,
    batch_dim: int = 0,
    seed: int = 0,
) -> Gates:
    """Give a model context gates, in place; build the optimizer afterwards.

    Args:
        model: any module; it keeps its class, its signature and its keys.
        contexts: how many to begin with; `Gates.add_context` adds more at any time.
        density: share of each site's units whose gate starts open; or a mapping from patterns of
            site names to shares. A gate that starts closed (v <= 0) has no slope: its unit stays
            out of that context for good.
        start: "random": |v| uniform in [0, width]. "open": every gain exactly 1, whatever the
            density says (pretrained networks). Since sigma has no slope where it is 1, such gates
            have the gain 1 + tanh(v), between 0 and 2, and v starts at 0. "part": the same for as
            many as the density says; the others have gain 0 for good. A number: the gain at which
            open gates start, like 0.95.
        sites: None finds every hidden layer; patterns of layer names; a mapping from the module
            behind which a gate goes to the layers it owns; or sites themselves, as
            `gateon.anatomy.encoders` finds.
        head: gate the output layers too.
        residual: "branch": every layer whose result is added to a residual stream has a gate of its
            own, and the stream keeps its full width in sub-networks. "stage": all that is summed in
            a stage of a residual network has one gate, in front of the layers that read it, so that the
            stage is narrowed as a whole. Streams of transformers are not: LayerNorm mixes units.
        example: one batch of input, for models whose layers cannot be followed without data.
        power: the gain is sigma(v) ** power.
        width: of the random start.
        steepness: gains are those of steepness * v: above 1 gates learn faster than the weights
            that share their optimizer.
        shared: patterns of site names where gates start on the same units in every context, for
            features that tasks have in common; elsewhere each context draws its own.
        in_turn: contexts take turns instead: each opens units that none has before, until every
            unit has had its turn.
        before_norm: multiply the layer's own output, before norm and activation, as the released
            code does.
        batch_dim: the dimension of activities that counts samples.
        seed: of the random start; the gates of a context do not depend on how many there are.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> print(attach(model, contexts=3, density=0.5))
    3 contexts, 1 gates, switched to 0
    site  units  gate           owns
    0     8      behind 1       0
    2     2      none (output)  2
    """
    if getattr(model, "context_gates", None) is not None or any(
        isinstance(m, Gate) for m in model.modules()
    ):
        raise ValueError(
            "This model has gates already: use gateon.gates_of(model), or detach() them first."
        )
    check_unsharded(model, "gates are sharded with it: attach them first, then call fully_shard")
    if not isinstance(contexts, int) or contexts < 1:
        raise ValueError(f"contexts must be a whole number of at least 1, got {contexts!r}.")
    named = ("random", "open", "part")
    if start not in named and not (isinstance(start, float) and 0 < start < 1):
        raise ValueError(
            f'start must be "random", "open", "part" or a gain between 0 and 1, got {start!r}.'
        )
    if not 0 < width < math.inf or power < 1:
        raise ValueError(f"width must be above 0 and power at least 1, got {width} and {power}.")
    if not 0 < steepness < math.inf:
        raise ValueError(f"steepness must be above 0, got {steepness}.")
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters()):
        raise ValueError(
            "This model has lazy layers, which know their units only after a forward pass: "
            "run one before attach."
        )
    check_trainable(model)
    found = find_sites(model, sites, example, head=head, residual=residual)
    if sites is None:
        warn_if_mostly_ungated(model, found)
    if before_norm:
        found = [replace(site, narrows=site.narrows_before_norm) for site in found]
    alike = matching_gates((shared,) if isinstance(shared, str) else shared, found)
    row = partial(
        initial_row,
        shares=shares_of(density, found),
        start=start,
        width=width,
        steepness=steepness,
        shared=alike,
        in_turn=in_turn,
        seed=seed,
    )
    observed = [s for s in found if not s.gated and s.place]
    gates = Gates(model, found)
    gates.arguments = {
        "density": density if isinstance(density, float | int) else dict(density),
        "start": start,
        "power": power,
        "width": width,
        "steepness": steepness,
        "shared": shared if isinstance(shared, str) else list(shared),
        "in_turn": in_turn,
        "before_norm": before_norm,
        "batch_dim": batch_dim,
        "seed": seed,
    }
    for n, site in enumerate(s for s in found if s.gated):
        draw = partial(row, n, site)
        v, like = torch.stack([draw(k) for k in range(contexts)]), _like(model, site)
        around_one = start in ("open", "part")
        selects = around_one and can_select(model, site)
        gate = (RankGate if selects else Gate)(
            site,
            v.to(like.device, like.dtype),
            power,
            batch_dim,
            around_one=around_one,
            steepness=steepness,
            draw=draw,
        )
        if (
            before_norm
            and site.place != site.name
            and not site.multiplied
            and sum(is_layer(model.get_submodule(o)) for o in site.owns) == 1
        ):
            layer = model.get_submodule(site.name)
            tap = Gate(site, None, power, batch_dim, silences=(gate,) if site.narrows else ())
            gate.site = replace(site, place=site.name, in_front=False, dim=unit_dim(layer))
            install(layer, gate, in_front=False)
            install(model.get_submodule(site.place), tap, in_front=site.in_front)
        else:
            install(model.get_submodule(site.place), gate, in_front=site.in_front)
        if isinstance(gate, RankGate):
            compute_open(model, site, gate)
        if site.at_readers:
            first, *further = (model.get_submodule(name) for name in site.readers)
            gate.site = replace(site, dim=unit_dim(first))
            for reader in further:
                install(reader, Read(gate, unit_dim(reader)), in_front=True)
    for site in observed:
        tap = Gate(site, None, power, batch_dim)
        install(model.get_submodule(site.place), tap, in_front=False)
    gates.lead(contexts)
    watch_passes(model)
    model.context_gates = gates  # type: ignore[assignment]
    return gates


def _like(model: nn.Module, site: Site) -> Tensor:
    """A tensor of the device and dtype of a site's gate.

    Adapters may have others than the first weight of a model, which may be in 8 or 4 bit.
    """
    own = list(model.get_submodule(site.name).parameters()) if site.columns else []
    every = chain(own, model.parameters())
    return next((p for p in every if p.is_floating_point()), torch.empty(0))
