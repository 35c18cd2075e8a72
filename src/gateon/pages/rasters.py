"""The trace of single units as a raster small enough for a page."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..tracing.trace import QUANTITIES, Trace
from .gates import packed
from .words import Facts

__all__ = ["raster"]

MOST = 900_000  # bytes of all rasters of a page
COLUMNS = 400  # samples of a raster: about one for every two points of the screen
FEWEST = 60  # samples; where there is no room for so many, some units are left out
CLIPPED = 99.5  # percentile at which a quantity without a natural range is cut off
RANGES = {"gain": (0.0, 1.0), "availability": (0.0, 1.0)}


def raster(trace: Trace, shared_by: int = 1) -> Facts | None:
    """A trace as a page draws it: samples, and then units, thinned evenly, numbers as bytes.

    Args:
        trace: of a run.
        shared_by: how many rasters the page has.

    >>> kept = Trace({"0": 8}, {"0": [1, 5]}, every=2)
    >>> for step in (0, 2, 4):
    ...     kept.add(step, 0, {"0": np.full((4, 2), step / 4)})
    >>> raster(kept)["steps"]
    [0, 2, 4]
    """
    if not len(trace) or not trace.sites:
        return None
    columns, every = _thinning(sum(map(len, trace.units.values())), shared_by)
    chosen = _thinned(len(trace), columns)
    tables = {name: getattr(trace, name) for name in QUANTITIES}
    return {
        "steps": trace.steps[chosen].tolist(),
        "contexts": trace.contexts[chosen].tolist(),
        "tasks": trace.tasks[chosen].tolist(),
        "starts": list(trace.starts),
        "every": trace.every,
        "kept": len(trace),
        "sites": [
            {
                "name": site,
                "units": trace.units[site][::every].tolist(),
                "of": trace.layers[site],
                "quantities": {
                    name: _coded(table[site][chosen, ::every].T, RANGES.get(name))
                    for name, table in tables.items()
                },
            }
            for site in trace.sites
        ],
    }


def _thinning(units: int, shared_by: int) -> tuple[int, int]:
    """How many samples there is room for, and of how many units one is taken."""
    room = MOST // shared_by // len(QUANTITIES)
    columns = min(COLUMNS, max(FEWEST, room // max(1, units)))
    return columns, max(1, -(-units * columns // room))


def _thinned(count: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _coded(values: NDArray[np.float32], limits: tuple[float, float] | None) -> Facts:
    """(units, samples) as bytes, and the range they stand for."""
    known = values[np.isfinite(values)]
    if limits is None:
        limits = (0.0, float(np.percentile(known, CLIPPED)) if len(known) else 1.0)
    low, high = limits
    clipped = bool(len(known) and known.max() > high)
    high = high if high > low else low + 1.0
    return {"low": low, "high": high, "clipped": clipped, "data": packed(values, low, high)}
