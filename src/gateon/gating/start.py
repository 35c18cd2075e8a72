"""How the gates of a new context start: which units are open, and how far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..anatomy.sites import Site, matching

__all__ = ["CLOSED", "Start", "initial_row", "matching_gates", "shares_of"]

Start = Literal["random", "open", "part"] | float
# v where 1 + tanh(v) and its slope are exactly 0, far enough for weight decay never to end that.
CLOSED = -1e4


def initial_row(
    n: int,
    site: Site,
    context: int,
    likely: Tensor | None = None,
    *,
    shares: Mapping[str, float],
    start: Start,
    width: float,
    steepness: float,
    shared: frozenset[str],
    in_turn: bool,
    seed: int,
) -> Tensor:
    """v of one context at the n-th gated site, drawn from a seed of its own.

    Args:
        n: the place of the site among the gated ones.
        site: whose gate it is.
        context: which one; the first one's row is used at sites that all contexts share.
        likely: how likely each unit is to be open; None: all alike.
        shares: share of open units by site.
        start: "random", "open", "part" or the gain of an open gate, as in `gateon.attach`.
        width: of the random start.
        steepness: what v is multiplied by.
        shared: the sites where all contexts start on the same units.
        in_turn: contexts take turns, so that units open in none yet come first.
        seed: of all gates.
    """
    units = site.units
    if site.name in shared:
        context, likely = 0, None
    if start == "open":
        return torch.zeros(units)
    generator = torch.Generator().manual_seed(
        int(np.random.SeedSequence((seed, n, context)).generate_state(1)[0])
    )
    order, count = (
        torch.randperm(units, generator=generator),
        max(1, round(shares[site.name] * units)),
    )
    if in_turn and likely is None:
        order = _order_of_turn(n, units, count, context, seed)
    if likely is not None:
        # Drawn without replacement in proportion to it: the largest of log p + Gumbel noise.
        noise = torch.empty(units).exponential_(generator=generator).log()
        order = (likely.detach().cpu().float().clamp_min(1e-6).log() - noise).argsort(
            descending=True
        )
    is_open = torch.zeros(units, dtype=torch.bool)
    is_open[order[:count]] = True
    if start == "part":
        return torch.where(is_open, 0.0, CLOSED)
    size = (
        torch.rand(units, generator=generator) * width
        if start == "random"
        else torch.full((units,), math.atanh(start))
    )
    # An open gate at exactly 0 would be a closed one.
    size = size.clamp_min(torch.finfo(torch.float32).tiny)
    return torch.where(is_open, size, -size) / steepness


def _order_of_turn(n: int, units: int, count: int, context: int, seed: int) -> Tensor:
    """Units in an order that begins with those whose turn it is.

    In every round each unit has its turn once at most; the order of a round is random.
    """
    rounds, turn = divmod(context, units // count)
    number = np.random.SeedSequence((seed, n, rounds, units)).generate_state(1)[0]
    order = torch.randperm(units, generator=torch.Generator().manual_seed(int(number)))
    return order.roll(-turn * count)


def matching_gates(patterns: Sequence[str], sites: list[Site]) -> frozenset[str]:
    """The gated sites whose names match one of the patterns."""
    gated = [site.name for site in sites if site.gated]
    return frozenset(name for pattern in patterns for name in matching(pattern, gated, "site"))


def shares_of(density: float | Mapping[str, float], sites: list[Site]) -> dict[str, float]:
    """The share of open units of every gated site; the first pattern that matches decides."""
    gated = {site.name: site for site in sites if site.gated}
    if isinstance(density, Mapping):
        shares = {
            name: float(d)
            for pattern, d in reversed(list(density.items()))
            for name in matching(pattern, gated, "site")
        }
        missing = next((name for name in gated if name not in shares), None)
        if missing is not None:
            raise ValueError(
                f'density has no value for site {missing!r}: add a pattern for it, such as "*".'
            )
    else:
        shares = dict.fromkeys(gated, float(density))
    for name, share in shares.items():
        if not 0 < share <= 1:
            raise ValueError(
                f"density of site {name!r} must be above 0 and at most 1, got {share}."
            )
    return shares
