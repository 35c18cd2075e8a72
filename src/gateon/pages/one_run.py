"""What a page says of one run, from its record, its trace and its last checkpoint."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..runs.identity import NUMERICS
from ..runs.record import TRACE, Record
from ..runs.switches import compared
from ..tracing.trace import Trace
from .findings import of_run
from .forecast import forecast
from .gates import bytes_kept, facts_of_gates, gates_of_run
from .rasters import raster
from .words import Facts

__all__ = ["facts_of_run", "method_of", "stream_of", "trace_of"]

MANY = 20  # runs, of which a page has room for fewer digits
LOSSES = 4000  # in a picture
APART = 3  # runs up to which gates of every layer are shown


def facts_of_run(
    folder: Path, record: Record, traced: int = 1, runs: int = 1, *, whole: bool = True
) -> Facts:
    """Everything a page shows of a run.

    Args:
        folder: of the run.
        record: of it, or of what it has done so far.
        traced: how many runs of the page have a trace.
        runs: how many runs the page has.
        whole: whether it is over.
    """
    asked, digits = record.specification, 4 if runs <= MANY else 3
    sections = {name: held for name, held in asked.items() if isinstance(held, dict)}
    top = {name: held for name, held in asked.items() if name not in sections}
    availability = [task for task in record.availability if task]
    trace = trace_of(folder)
    found: Facts = {
        "name": f"{stream_of(record)}, {method_of(record)}, seed {asked.get('seed', 0)}",
        "method": method_of(record),
        "folder": folder.name,
        "whole": whole,
        "tasks": record.tasks,
        "accuracy": [
            [a if a is None else round(a, digits) for a in row] for row in record.accuracy
        ],
        "forgetting": _forgetting(record),
        "isolated": record.isolated,
        "availability": _short(availability),
        "density": [task for task in record.density if task],
        "forecast": _plain(forecast(availability)),
        "curves": record.curves,
        "contexts": record.contexts,
        "detector": _detector(record),
        "gates": facts_of_gates(gates_of_run(folder), _names(record), runs <= APART),
        "raster": None if trace is None else raster(trace, traced),
        "seconds": [[s["train"], s["evaluate"]] for s in record.seconds],
        "samples": record.samples,
        "bytes": bytes_kept(folder),
        "command": record.command,
        "settings": {"run": top, **sections} if top else sections,
        "environment": record.environment,
        "data": record.data,
        "note": f"This record has numerics version {record.numerics}, and this gateon {NUMERICS}: "
        "do not compare it with new ones."
        if record.is_old
        else None,
    }
    return found | {"findings": of_run(found)}


def trace_of(folder: Path) -> Trace | None:
    """The trace of a run, if it has one; a damaged one is a ValueError."""
    path = folder / TRACE
    return Trace.load(path) if path.exists() else None


def stream_of(record: Record) -> str:
    """The name of the stream."""
    return _name(record, "stream")


def method_of(record: Record) -> str:
    """The name of the method."""
    return _name(record, "method")


def _name(record: Record, part: str) -> str:
    found = record.specification.get(part, record.name)
    return str(found.get("name", record.name) if isinstance(found, dict) else found)


def _names(record: Record) -> list[str]:
    """What each context is called: the first task that was learned in it."""
    found: dict[int, str] = {}
    for task, context in zip(record.tasks, record.contexts, strict=False):
        found.setdefault(context, task)
    return [found.get(n, f"context {n + 1}") for n in range(max(found, default=-1) + 1)]


def _forgetting(record: Record) -> list[list[float]]:
    """[task, just after it was learned, at the end] of the tasks that were measured at the end."""
    if not record.accuracy:
        return []
    first = [row[k] for k, row in enumerate(record.accuracy)]
    return [
        [task, round(then, 4), round(now, 4)]
        for task, (then, now) in enumerate(zip(first, record.accuracy[-1], strict=False))
        if then is not None and now is not None
    ]


def _detector(record: Record) -> Facts | None:
    """What the detector found, where contexts are inferred."""
    if not record.switches and _contexts(record) != "inferred":
        return None
    count = len(record.tasks)
    switches = [switch for switch in record.switches if switch[0] < count]
    found = compared(record.identities[:count], record.contexts[:count], switches)
    return asdict(found) | {
        "real": found.switches,
        "switches": [{"task": t, "step": s, "context": c} for t, s, c in switches],
        "tasks": [
            {"identity": identity, "context": context}
            for identity, context in zip(
                record.identities[:count], record.contexts[:count], strict=True
            )
        ],
        "delay": statistics.median(found.delays) if found.delays else None,
        "losses": _losses(record),
    }


def _losses(record: Record) -> list[list[list[float]]]:
    """For each task, losses and suspicions, as many as fit: of many tasks only some of each."""
    every = max(1, sum(map(len, record.losses)) // LOSSES)
    return [
        [loss for n, loss in enumerate(task) if n % every == 0 or (loss[2] and every < 8)]
        for task in record.losses
    ]


def _contexts(record: Record) -> Any:
    found = record.specification.get("detector", {})
    known = record.specification.get("contexts", "known")
    return found.get("contexts", known) if isinstance(found, dict) else known


def _short(availability: Sequence[Mapping[str, Mapping[str, float]]]) -> list[Facts]:
    """The same in few digits."""
    return [
        {site: {name: round(value, 4) for name, value in held.items()} for site, held in at.items()}
        for at in availability
    ]


def _plain(found: Any) -> Facts | None:
    return None if found is None else asdict(found)
