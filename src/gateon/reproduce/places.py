"""The places of a table, each with the specification that is run there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runs.resolve import options_for
from ..runs.specification import Specification
from ..streams.registry import entry as stream_entry
from .table import Options, Row, Table, choose

__all__ = ["Cell", "cells", "folder_of", "settings"]


@dataclass(frozen=True)
class Cell:
    """One place of a table, and what to run there: None at scales the row is not run at."""

    row: Row
    column: str
    stream: str
    specification: Specification | None

    @property
    def place(self) -> tuple[str, str, str]:
        """Row, column and stream."""
        return self.row.label, self.column, self.stream


def cells(
    table: Table,
    scale: str,
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    streams: Sequence[str] = (),
    changes: Options | None = None,
) -> list[Cell]:
    """The places of a table, by default all that its scale runs.

    Args:
        table: which.
        scale: quick, cpu or paper.
        rows: which of them.
        columns: which of them.
        streams: which of them.
        changes: options that go before all others.

    >>> from gateon.reproduce import load
    >>> cell = cells(load("table-1"), "cpu", rows=["n-GateON"], columns=["best"])[0]
    >>> cell.specification.network.hidden, cell.specification.training.steps
    ((2000, 2000), 250)
    """
    size = table.scale(scale)
    here = {row.label: row for row in table.rows if row.narrow != "as well" or size.narrow}
    chosen_rows = choose("row", rows, here) or list(here)
    chosen_columns = choose("column", columns, table.columns) or size.columns or table.columns
    chosen_streams = choose("stream", streams, table.streams) or size.streams or table.streams
    return [
        Cell(row, column, stream, _specification(table, scale, row, column, stream, changes or {}))
        for row in map(here.__getitem__, chosen_rows)
        for stream in chosen_streams
        if not row.streams or stream in row.streams
        for column in chosen_columns
        if not row.columns or column in row.columns
    ]


def settings(specification: Specification) -> dict[str, Any]:
    """What decides a result, apart from the seed."""
    return {name: value for name, value in specification.to_dict().items() if name != "seed"}


def folder_of(specification: Specification, folder: Path) -> Path:
    """Where a run is kept; its name is decided by whatever decides its result."""
    return folder / specification.key()


def _specification(
    table: Table, scale: str, row: Row, column: str, stream: str, changes: Options
) -> Specification | None:
    """What is run in one place: options of the row go before those of column, stream and scale."""
    if row.scales and scale not in row.scales:
        return None
    size = table.scale(scale)
    common = _over(
        size.options, table.columns[column], table.on.get(stream, {}), size.on.get(stream, {})
    )
    own = _over(
        row.options,
        row.on.get(stream, {}),
        row.at.get(scale, {}),
        row.at_on.get(scale, {}).get(stream, {}),
    )
    last = _over(size.narrow if row.narrow else {}, changes)
    asked = _over({"stream.name": stream}, common, own, last)
    known = _known(asked)
    asked = {name: value for name, value in asked.items() if name in known or name in own}
    if row.times > 1 and asked.get("stream.tasks"):
        asked["stream.tasks"] *= row.times
    return Specification.from_options(asked)


def _over(*layers: Options) -> dict[str, Any]:
    """Options of which later ones go before earlier ones; steps and epochs replace each other.

    >>> _over({"training.steps": 9}, {"training.epochs": 3})
    {'training.epochs': 3}
    """
    found: dict[str, Any] = {}
    for layer in layers:
        for one, other in (("steps", "epochs"), ("epochs", "steps")):
            if f"training.{one}" in layer:
                found.pop(f"training.{other}", None)
        found |= layer
    return found


def _known(asked: Options) -> set[str]:
    """The options that the chosen stream, method, network and detector have."""
    stream, method = asked["stream.name"], asked["method.name"]
    kind = asked.get("network.kind", stream_entry(stream).network)
    known = {
        f"{section}.{option}"
        for section, found in options_for(stream, method, kind).items()
        if section != "detector" or asked.get("detector.contexts") == "inferred"
        for option in found
    }
    return known | {"seed", "detector.contexts"}
