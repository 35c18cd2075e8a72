"""What the gates of a model show of themselves: sites, units, owners, and how open they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..anatomy.sites import Site
from ..markup import block, table

if TYPE_CHECKING:
    from .gates import Gates

__all__ = ["as_html", "as_text", "brief", "counts"]

TITLES = ("site", "units", "gate", "owns")


def counts(gates: Gates) -> str:
    """How many gates and contexts, and which of them is active."""
    return (
        f"{gates.contexts} contexts, {len(gates.gates)} gates, switched to {brief(gates.context)}"
    )


def as_text(gates: Gates) -> str:
    """A table of sites: their units, where the gate sits, and what they own."""
    rows = [TITLES, *map(_row, gates.sites.values())]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    return "\n".join([counts(gates), *lines])


def as_html(gates: Gates) -> str:
    """The same for a notebook, with the share of units that are open in the active context."""
    gains = gates.gain() if isinstance(gates.context, int) else {}
    share = {name: (gain > 0).float().mean().item() for name, gain in gains.items()}
    rows = [
        [*_row(site)[:2], f"{share[name]:.0%}" if name in share else "-", *_row(site)[2:]]
        for name, site in gates.sites.items()
    ]
    return block(
        "Gates", table(("site", "units", "open", "gate", "owns"), rows), note=counts(gates)
    )


def brief(context: Any) -> str:
    """A context, or several, in few characters."""
    text = repr(context.tolist() if isinstance(context, Tensor) else context)
    return text if len(text) < 60 else text[:57] + "..."


def _row(site: Site) -> tuple[str, str, str, str]:
    owns = ", ".join(name or "(model)" for name in site.owns)
    return site.name or "(model)", str(site.units or "-"), _where(site), owns


def _where(site: Site) -> str:
    if not site.gated:
        return "none (output)" if site.head else f"none ({site.note})"
    if site.at_readers:
        return f"in front of {site.place} and {len(site.readers) - 1} more"
    place = f"{'in front of' if site.in_front else 'behind'} {site.place}"
    return f"{place} ({site.note})" if site.note else place
