"""A trace of a training loop of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ..availability.obstruct import Obstruction
from ..gating.gates import Gates
from .electrode import Electrode
from .recorder import new_trace
from .trace import Trace

__all__ = ["trace"]


@contextmanager
def trace(
    gates: Gates,
    handle: Obstruction,
    sites: str | Sequence[str] = "*",
    *,
    units: Mapping[str, Sequence[int]] | None = None,
    every: int = 1,
) -> Iterator[Trace]:
    """Keep what units do while you train: gain, activity, relevance, availability; see `Trace`.

    Gain and activity are those of the last forward pass before a step. A compiled model does not
    tell its activity.

    Args:
        gates: what `attach` returned.
        handle: what `obstruct` returned.
        sites: patterns of the names of sites; up to 64 units of each are watched, evenly spaced.
        units: instead, by name of the site, which units.
        every: steps between samples; memory is bounded, so that this doubles in a long training.

    >>> import gateon, torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> gates = gateon.attach(model, density=1.0)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> handle = gateon.obstruct(optimizer, gates, rate=0.1)
    >>> with gateon.trace(gates, handle) as t:
    ...     for step in range(20):
    ...         model(torch.ones(3, 4)).square().sum().backward()
    ...         optimizer.step()
    ...         optimizer.zero_grad()
    >>> t.availability["0"].shape, bool((t.availability["0"][-1] < 1).any())
    ((20, 8), True)
    """
    patterns = [sites] if isinstance(sites, str) else sites
    kept = new_trace(gates, patterns, every)
    if units is not None:
        kept = Trace(kept.layers, units, every=every)

    def is_due() -> bool:
        return kept.is_due(handle.steps)

    def keep() -> None:
        if is_due():
            context = -1 if gates.learning is None else gates.learning
            kept.add(handle.steps, context, electrode.read())

    electrode = Electrode(gates, kept.units, is_due)
    handle.watchers.append(keep)  # behind that of the electrode
    try:
        yield kept
    finally:
        electrode.remove()
        handle.watchers.remove(keep)
