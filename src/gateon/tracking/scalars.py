"""What is tracked of availability, by the same names everywhere."""

from __future__ import annotations

from collections.abc import Mapping

from ..availability.obstruction import Obstruction

__all__ = ["availability_scalars", "site_scalars"]


def availability_scalars(handle: Obstruction) -> dict[str, float]:
    """How available the units of each site are, and what share of them is frozen.

    Args:
        handle: what `obstruct` returned.

    >>> import gateon, torch
    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
    ... )
    >>> gates = gateon.attach(model, contexts=2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> availability_scalars(gateon.obstruct(optimizer, gates))
    {'availability/0': 1.0, 'saturation/0': 0.0}
    """
    return site_scalars({name: one[:2] for name, one in handle.saturation().items()})


def site_scalars(sites: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """The same from (share frozen, mean availability) by site."""
    found: dict[str, float] = {}
    for site, (frozen, room) in sites.items():
        found |= {f"availability/{site}": room, f"saturation/{site}": frozen}
    return found
