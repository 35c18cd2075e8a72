"""The content of a table's record: what all finished runs found, and earlier entries that hold."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..runs import legacy
from ..runs.environment import environment
from ..runs.identity import NUMERICS
from ..runs.record import Record
from ..runs.specification import Specification
from ..storage.checkpoint import whole_file
from .deviations import deviations
from .measures import INSIDE, SERIES, measures
from .places import Cell, cells, folder_of, settings
from .table import Options, Table

__all__ = ["content_of", "is_finished", "is_whole", "place_of", "read", "write_json"]

Entry = dict[str, Any]
Place = tuple[str, str, str]  # row, column, stream


def read(path: Path) -> dict[str, Any]:
    """The content of a table's record; settings of old entries are brought into sections."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content["entries"], list):
            raise TypeError
        entries = [_with_sections(entry) for entry in content["entries"]]
    except (ValueError, KeyError, TypeError) as reason:
        raise ValueError(
            f"{path} is no record of gateon reproduce, or a damaged one: move it away."
        ) from reason
    return {**content, "entries": entries}


def _with_sections(entry: Entry) -> Entry:
    found = entry["settings"]
    if not legacy.is_flat(found):
        return entry
    options = {name: value for name, value in found.items() if name not in ("made", "key")}
    return entry | {"settings": settings(Specification.from_options(options))}


def place_of(table: Table, specification: Specification, folder: Path) -> Path:
    """Where a run is kept: tables share runs, but not what one of them looks at by itself."""
    own = folder_of(specification, folder)
    return own.with_name(f"{own.name}-{table.name}") if table.look else own


def is_whole(place: Path) -> bool:
    """Whether a run is finished, and what is kept beside it was written too."""
    return (place / "record.json").exists() and (place / INSIDE).exists()


def is_finished(table: Table, specification: Specification, folder: Path) -> bool:
    """Whether a run has everything the table asks for."""
    place = place_of(table, specification, folder)
    if table.look:
        return (place / "found.json").exists()
    by_itself = (
        "accuracy_deviation" not in table.measures or specification.method.name == "isolated"
    )
    return is_whole(place) and (by_itself or (place / "alone.json").exists())


def content_of(
    table: Table,
    scale: str,
    folder: Path,
    results: Path,
    changes: Options,
    failed: Mapping[Place, str],
) -> dict[str, Any]:
    """All there is to say: everything that is finished, run now or before.

    Args:
        table: which.
        scale: its name.
        folder: of the runs.
        results: where an earlier record may be.
        changes: options that go before all others.
        failed: the places whose runs came to no end, and why.
    """
    everything = cells(table, scale, columns=list(table.columns), changes=changes)
    before = table.place(results, scale) / "record.json"
    kept = {_place(entry): entry for entry in (read(before)["entries"] if before.exists() else ())}
    entries = []
    for cell in everything:
        entry, old = _entry(table, cell, folder), kept.get(cell.place)
        if old is not None and _is_current(old, cell) and _has_more(old, entry):
            entry = old
        if entry is None and cell.place in failed:
            entry = _described(cell) | {"failed": failed[cell.place], "seeds": [], "measures": {}}
        if entry is not None:
            entries.append(entry)
    _add_extra(entries)
    _add_deviation(entries)
    return {
        "name": table.name,
        "title": table.title,
        "scale": scale,
        "rows": list(dict.fromkeys(cell.row.label for cell in everything)),
        "columns": list(table.columns),
        "streams": list(table.streams),
        "measures": list(table.measures),
        "printed": table.printed,
        "paper": {cell.row.label: table.printed_numbers(cell.row) for cell in everything},
        "differences": deviations(table, scale),
        "entries": entries,
        "environment": environment(),
    }


def write_json(content: Any, path: Path) -> None:
    """As JSON, with every list of numbers on one line."""
    text = json.dumps(content, indent=1, allow_nan=False)
    number = r"(?:-?[\d.e+-]+|null)"
    text = re.sub(rf"\[\s+({number}(?:,\s+{number})*)\s+\]", _on_one_line, text)
    with whole_file(path) as aside:
        aside.write_text(text + "\n", encoding="utf-8", newline="\n")


def _on_one_line(found: re.Match[str]) -> str:
    return "[" + re.sub(r",\s+", ", ", found[1]) + "]"


def _place(entry: Entry) -> Place:
    return entry["row"], entry["column"], entry["stream"]


def _is_current(entry: Entry, cell: Cell) -> bool:
    """Whether an entry of an earlier record has today's settings and numerics."""
    return (
        cell.specification is not None
        and entry.get("numerics", 1) == NUMERICS
        and bool(entry["settings"] == settings(cell.specification))
    )


def _has_more(old: Entry, new: Entry | None) -> bool:
    return new is None or len(old["seeds"]) > len(new["seeds"])


def _entry(table: Table, cell: Cell, folder: Path) -> Entry | None:
    """What the finished runs of one place found."""
    if cell.specification is None:
        return None
    runs: list[Path] = []
    while is_finished(table, one := cell.specification.with_options({"seed": len(runs)}), folder):
        runs.append(place_of(table, one, folder))
    if not runs:
        return None
    entry = _described(cell) | {"seeds": list(range(len(runs))), "numerics": NUMERICS}
    if table.look:
        found = [json.loads((run / "found.json").read_text(encoding="utf-8")) for run in runs]
        return entry | {"found": found}
    records = [Record.load(run / "record.json") for run in runs]
    each = [measures(r, run, _alone(run)) for r, run in zip(records, runs, strict=True)]
    series = {
        name: np.stack([SERIES[name](r, run) for r, run in zip(records, runs, strict=True)])
        for name in table.series
    }
    return entry | {
        "data": records[0].data.get("name"),
        "made": [_made(record) for record in records],
        "measures": {
            name: _over_seeds(np.array([one[name] for one in each]))
            for name in each[0]
            if all(name in one for one in each)
        },
        "series": {name: _over_seeds(values) for name, values in series.items()},
    }


def _made(record: Record) -> dict[str, Any]:
    """How and where a run was made."""
    names = ("commit", "time", "threads", "processor")
    found = {name: record.environment.get(name) for name in names}
    return {"command": record.command, "seed": record.specification.get("seed")} | found


def _described(cell: Cell) -> Entry:
    assert cell.specification is not None
    asked = cell.specification
    row, column, stream = cell.place
    return {
        "row": row,
        "column": column,
        "stream": stream,
        "settings": settings(asked),
        "replay": asked.make_method().replay,
        "heads": asked.network.heads == "per-task" or asked.method.name == "isolated",
        "label_at_test": asked.needs_label(),
    }


def _alone(place: Path) -> dict[str, list[float]]:
    """How well networks did that learn one task each; an old file holds accuracies only."""
    path = place / "alone.json"
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {"accuracy": held} if isinstance(held, list) else dict(held)


def _of_method(entries: Sequence[Entry], method: str, measure: str) -> dict[Place, float]:
    """The mean of a measure in the entries of a method, by column and stream."""
    return {
        ("", entry["column"], entry["stream"]): entry["measures"][measure]["mean"]
        for entry in entries
        if entry["settings"]["method"]["name"] == method and measure in entry.get("measures", {})
    }


def _add_extra(entries: Sequence[Entry]) -> None:
    """What a method keeps beyond the plain network, which is what finetuning keeps."""
    plain = _of_method(entries, "finetune", "state_bytes")
    for entry in entries:
        base = plain.get(("", entry["column"], entry["stream"]))
        kept = entry.get("measures", {}).get("state_bytes")
        if base is not None and kept is not None:
            entry["measures"]["extra_bytes"] = {
                "mean": kept["mean"] - base,
                "spread": kept["spread"],
                "each": [each - base for each in kept["each"]],
            }


def _add_deviation(entries: Sequence[Entry]) -> None:
    """The deviation (eq. 16) from the row of isolated networks, which has its own best settings."""
    apart = _of_method(entries, "isolated", "immediate_accuracy")
    for entry in entries:
        isolated = apart.get(("", entry["column"], entry["stream"]))
        if isolated is not None and "accuracy_deviation" in entry.get("measures", {}):
            ours = np.array(entry["measures"]["immediate_accuracy"]["each"])
            entry["measures"]["accuracy_deviation"] = _over_seeds((ours - isolated) / isolated)


def _over_seeds(values: Any) -> dict[str, Any]:
    """Mean, standard deviation and, of plain numbers, each."""
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(values[0])
    found = {"mean": _plain(values.mean(axis=0)), "spread": _plain(spread)}
    return found | ({"each": _plain(values)} if values.ndim == 1 else {})


def _plain(value: Any) -> Any:
    """Numbers that JSON has, no longer than they need be."""
    rounded = np.round(np.asarray(value, dtype=np.float64), 6)
    return np.where(np.isnan(rounded), None, rounded).tolist()  # type: ignore[call-overload]
