"""What a page says of runs, as plain JSON: read from the directories that runs and tables left."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runs.folder import checkpoints
from ..runs.identity import NUMERICS
from ..runs.record import Record
from ..storage import checkpoint
from ..storage.files import content_of
from .colours import PALETTE, colours
from .table import COLUMNS

__all__ = ["facts", "found_runs", "scarcest", "similarity_order"]

LARGEST = 1 << 28  # bytes of a table's record
GATES = ".context_gate.weight"  # the gates of a site in the state of a model
SHOWN = 300  # contexts in a picture of overlaps
BEST = {"forgetting_rate": "min", "seconds": "min"}

Facts = dict[str, Any]


def facts(folders: Sequence[Path]) -> Facts:
    """Everything a page shows.

    Args:
        folders: of runs, of comparisons (directories of runs), or of reproduced tables.
    """
    runs = list(chain.from_iterable(found_runs(folder) for folder in folders))
    tables = [] if runs else [_table(folder) for folder in folders if _is_table(folder)]
    if not runs and not tables:
        raise ValueError(
            f"{', '.join(map(str, folders))}: no finished run here: give the directory of a run, "
            "of a comparison or of a reproduced table."
        )
    methods = _methods(runs) if runs else list(chain.from_iterable(tables))
    names = list(dict.fromkeys(_stream(record) for _, record in runs)) or [f.name for f in folders]
    return {
        "title": ", ".join(names),
        "about": _about(runs, methods),
        "part": runs[0][1].part if runs else "test",
        "palette": PALETTE,
        "measures": [
            {"name": name, "title": title, "unit": "%", "best": BEST.get(name, "max")}
            for name, title in COLUMNS.items()
        ]
        + [{"name": "seconds", "title": "training", "unit": "s", "best": "min"}],
        "methods": methods,
        "runs": [_run(folder, record) for folder, record in runs],
    }


def found_runs(folder: Path) -> list[tuple[Path, Record]]:
    """The finished runs in a directory or right below it, networks that learned alone left out."""
    if not folder.is_dir():
        raise ValueError(f"There is no directory {folder}.")
    own = folder / "record.json"
    if own.exists():
        return [] if _is_table(folder) else [(folder, Record.load(own))]
    below = sorted(path.parent for path in folder.glob("*/record.json"))
    runs = [
        (place, Record.load(place / "record.json"))
        for place in below
        if not place.name.startswith("isolated-") and not _is_table(place)
    ]
    return sorted(runs, key=lambda run: -run[1].summary["final_accuracy"] if run[1].tasks else 1.0)


def scarcest(availability: Sequence[Mapping[str, Mapping[str, float]]]) -> str | None:
    """Which layer has the least room left, as a sentence.

    >>> scarcest([{"1": {"room": 0.9}}, {"1": {"room": 0.8}}])
    'Layer 1 has the least room left, 80 %; the last task took 10.0 points of it.'
    """
    if len(availability) < 2:
        return None
    before, now = availability[-2:]
    site = min(now, key=lambda name: now[name]["room"])
    left = now[site]["room"]
    taken = before[site]["room"] - left if site in before else 0.0
    return (
        f"Layer {site} has the least room left, {100 * left:.0f} %; "
        f"the last task took {100 * taken:.1f} points of it."
    )


def similarity_order(overlap: NDArray[np.float64]) -> list[int]:
    """An order in which similar contexts stand together: that of the Fiedler vector.

    >>> similarity_order(np.array([[1.0, 0.1, 0.9], [0.1, 1.0, 0.2], [0.9, 0.2, 1.0]]))
    [0, 2, 1]
    """
    if len(overlap) < 3:
        return list(range(len(overlap)))
    laplacian = np.diag(overlap.sum(1)) - overlap
    vector = np.linalg.eigh(laplacian)[1][:, 1]
    vector = vector if vector[0] <= vector[-1] else -vector  # either sign is one
    return [int(n) for n in np.argsort(vector, kind="stable")]


def _about(runs: Sequence[tuple[Path, Record]], methods: Sequence[Facts]) -> str:
    if not runs:
        return f"{len(methods)} rows of a table."
    tasks = {len(record.tasks) for _, record in runs}
    seeds = {record.specification.get("seed", 0) for _, record in runs}
    count = f"{min(tasks)}" if len(tasks) == 1 else f"{min(tasks)} to {max(tasks)}"
    parts = [f"{count} tasks", f"{len(methods)} method{'s' * (len(methods) > 1)}"]
    parts += [f"{len(seeds)} seed{'s' * (len(seeds) > 1)}"]
    return ", ".join(parts) + f", measured on {runs[0][1].part} data."


def _methods(runs: Sequence[tuple[Path, Record]]) -> list[Facts]:
    groups: dict[str, list[Record]] = {}
    several = len({_stream(record) for _, record in runs}) > 1
    for _, record in runs:
        name = _method(record)
        groups.setdefault(f"{name}, {_stream(record)}" if several else name, []).append(record)
    colour = colours(groups)
    return [
        {
            "name": name,
            "colour": colour[name],
            "runs": [record.name for record in records],
            "measures": _measures(records),
            "curve": _mean_curve(records),
        }
        for name, records in groups.items()
    ]


def _measures(records: Sequence[Record]) -> Facts:
    rows = [r.summary | {"seconds": sum(s["train"] for s in r.seconds)} for r in records]
    known = [name for name in rows[0] if all(name in row for row in rows)]
    return {name: _spread([row[name] for row in rows]) for name in known}


def _spread(values: Sequence[float]) -> Facts:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "spread": spread, "count": len(values)}


def _mean_curve(records: Sequence[Record]) -> list[list[float]]:
    """(tasks learned, mean accuracy over them, spread over seeds), where all tasks were measured."""
    points = []
    for k in range(min(len(record.accuracy) for record in records)):
        rows = [[a for a in record.accuracy[k] if a is not None] for record in records]
        if all(len(row) == k + 1 for row in rows):
            found = _spread([statistics.fmean(row) for row in rows])
            points.append([k + 1, found["mean"], found["spread"]])
    return points


def _run(folder: Path, record: Record) -> Facts:
    asked = record.specification
    sections = {name: held for name, held in asked.items() if isinstance(held, dict)}
    top = {name: held for name, held in asked.items() if name not in sections}
    inferred = bool(record.switches) or _contexts(record) == "inferred"
    return {
        "name": f"{_stream(record)}, {_method(record)}, seed {asked.get('seed', 0)}",
        "folder": folder.name,
        "tasks": record.tasks,
        "accuracy": record.accuracy,
        "availability": [task for task in record.availability if task],
        "scarcest": scarcest([task for task in record.availability if task]),
        "curves": record.curves,
        "switches": [{"task": t, "step": s, "context": c} for t, s, c in record.switches]
        if inferred
        else None,
        "gates": _gates(folder),
        "command": record.command,
        "settings": {"run": top, **sections} if top else sections,
        "environment": record.environment,
        "data": record.data,
        "note": f"This record has numerics version {record.numerics}, and this gateon {NUMERICS}: "
        "do not compare it with new ones."
        if record.is_old
        else None,
    }


def _gates(folder: Path) -> Facts | None:
    """How far the sub-networks of contexts overlap, from the last checkpoint, if it is still there."""
    for path in checkpoints(folder):
        try:
            model = checkpoint.load(path, only=["learner"])["learner"]["model"]
        except (ValueError, KeyError, TypeError, OSError):
            continue
        rows = [value.numpy() for name, value in model.items() if name.endswith(GATES)]
        if rows and 1 < len(rows[0]) <= SHOWN:
            is_open = np.concatenate(rows, axis=1) > 0
            both = is_open.astype(float) @ is_open.T.astype(float)
            either = is_open.sum(1)[:, None] + is_open.sum(1)[None] - both
            overlap = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
            return {
                "overlap": np.round(overlap, 4).tolist(),
                "order": similarity_order(overlap),
                "units": int(is_open.shape[1]),
            }
        return None
    return None


def _is_table(folder: Path) -> bool:
    path = folder / "record.json"
    return path.exists() and isinstance(_json(path).get("entries"), list)


def _table(folder: Path) -> list[Facts]:
    """The entries of a reproduced table as methods."""
    entries = [e for e in _json(folder / "record.json")["entries"] if e.get("measures")]
    names = [f"{e['row']}, {e['column']}, {e['stream']}" for e in entries]
    colour = colours(names)
    return [
        {
            "name": name,
            "colour": colour[name],
            "runs": entry["seeds"],
            "measures": {
                measure: {**found, "count": len(entry["seeds"])}
                for measure, found in entry["measures"].items()
            },
            "curve": [],
        }
        for name, entry in zip(names, entries, strict=True)
    ]


def _json(path: Path) -> Facts:
    try:
        found: Facts = json.loads(content_of(path, LARGEST).decode())
        return found if isinstance(found, dict) else {}
    except ValueError as reason:
        raise ValueError(
            f"{path} is not a gateon record, or it is damaged: move it away."
        ) from reason


def _stream(record: Record) -> str:
    found = record.specification.get("stream", record.name)
    return str(found.get("name", record.name) if isinstance(found, dict) else found)


def _method(record: Record) -> str:
    found = record.specification.get("method", record.name)
    return str(found.get("name", record.name) if isinstance(found, dict) else found)


def _contexts(record: Record) -> Any:
    found = record.specification.get("detector", {})
    known = record.specification.get("contexts", "known")
    return found.get("contexts", known) if isinstance(found, dict) else known
