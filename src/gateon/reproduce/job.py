"""A job: one table or figure, as data, and the runs it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from ..methods.registry import METHODS
from ..runs import legacy
from ..runs.run import Progress
from ..runs.specification import Specification
from .paper import Numbers

__all__ = [
    "SCALES",
    "Cell",
    "Job",
    "Row",
    "Scale",
    "cells",
    "choose",
    "differences",
    "folder_of",
    "settings",
]

Fields = Mapping[str, Any]
SCALES = {
    "quick": "minutes, on 5,000 digits that need no network",
    "cpu": "hours on two cores, full MNIST",
    "paper": "the paper's sizes and steps, for a GPU",
}
PRESETS: dict[str, Fields] = {name: {"preset": name} for name in ("paper", "released", "best")}


@dataclass(frozen=True)
class Row:
    """One row of a table, or one line of a figure.

    Args:
        label: its name.
        fields: of the `Specification`. A method or an option that does not exist is no error: the
            paper's number is shown alone.
        paper: its name in the paper's table, where that is another.
        columns: the columns it is run for; all if empty.
        streams: the streams it is run on; all if empty.
        times: how many times as many tasks as the others.
        where: fields that hold on one stream or at one scale alone, by its name, or on one stream
            at one scale, as "asc at cpu".
        scales: those it is run at; elsewhere the paper's number is shown alone. All if empty.
        narrow: "instead": where a scale has a narrower network for it, it is run with that. "as
            well": it is a row only there.
    """

    label: str
    fields: Fields
    paper: str = ""
    columns: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    times: int = 1
    where: Mapping[str, Fields] = field(default_factory=dict)
    scales: tuple[str, ...] = ()
    narrow: Literal["", "instead", "as well"] = ""


@dataclass(frozen=True)
class Scale:
    """How large a job is run.

    Args:
        fields: of the `Specification`.
        seeds: how many.
        alone: how many tasks are also learned alone, for the accuracy deviation; None for all.
        plain: fields of the networks that learn alone, where other settings than the method's are
            best for them.
        narrow: fields of rows that cannot leave out units and so would take too long.
        columns: those that are run unless others are asked for; all if empty.
        streams: likewise the streams, each with fields that hold there alone; all if empty.
    """

    fields: Fields
    seeds: int = 1
    alone: int | None = None
    plain: Fields = field(default_factory=dict)
    narrow: Fields = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    streams: Mapping[str, Fields] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A table or a figure: rows x columns x streams, each a `Specification` for every seed.

    Args:
        name: as on the command line.
        title: what it is.
        rows: see `Row`.
        streams: name -> fields that hold for it alone.
        scales: quick, cpu and paper.
        columns: name -> fields; the three presets for most.
        measures: what the table shows; none for a figure.
        series: what is kept over tasks or steps, for a figure; see `gateon.reproduce.measures`.
        paper: the numbers to show beside ours.
        differences: what is done otherwise than in the paper, as sentences; those between scales
            are found by themselves.
        look: instead of a run, for what a run does not keep: makes a JSON-able result of one
            specification.
        draw: makes the figure out of the content of the job's record.
        printed: whose numbers `paper` holds.
        group: of results: where its records are.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    streams: Mapping[str, Fields]
    scales: Mapping[str, Scale]
    columns: Mapping[str, Fields] = field(default_factory=lambda: dict(PRESETS))
    measures: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    paper: Numbers = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    look: Callable[[Specification, Progress | None], dict[str, Any]] | None = None
    draw: Callable[[Mapping[str, Any], Path], list[Path]] | None = None
    printed: str = "the paper"
    group: str = "paper"

    def scale(self, name: str) -> Scale:
        """Its settings at a scale."""
        return self.scales[choose("scale", [name], self.scales)[0]]

    def place(self, results: Path, scale: str) -> Path:
        """Where record, table and figure are: results/GROUP/NAME-SCALE."""
        return results / self.group / f"{self.name}-{scale}"


@dataclass(frozen=True)
class Cell:
    """One place of a table: what to run there; None where its method or an option of it does not exist."""

    row: Row
    column: str
    stream: str
    specification: Specification | None

    @property
    def place(self) -> tuple[str, str, str]:
        """Row, column and stream."""
        return self.row.label, self.column, self.stream


def cells(
    job: Job,
    scale: str,
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    streams: Sequence[str] = (),
    changes: Fields | None = None,
) -> list[Cell]:
    """The places of a job, by default all its scale runs.

    Args:
        job: which table or figure.
        scale: quick, cpu or paper.
        rows, columns, streams: which of them; all the scale has by default.
        changes: fields that override all others.

    >>> from gateon.reproduce import JOBS
    >>> cell = cells(JOBS["table-1"], "cpu", rows=["n-GateON"], columns=["best"])[0]
    >>> cell.specification.network.hidden, cell.specification.training.steps
    ((2000, 2000), 250)
    """
    size = job.scale(scale)
    chosen_columns = (
        choose("column", columns, job.columns) or list(size.columns) or list(job.columns)
    )
    chosen_streams = (
        choose("stream", streams, job.streams) or list(size.streams) or list(job.streams)
    )
    here = {row.label: row for row in job.rows if row.narrow != "as well" or size.narrow}
    return [
        Cell(row, column, stream, _specification(job, scale, row, column, stream, changes or {}))
        for row in (here[label] for label in choose("row", rows, here) or here)
        for stream in chosen_streams
        if not row.streams or stream in row.streams
        for column in chosen_columns
        if not row.columns or column in row.columns
    ]


def choose(what: str, asked: Sequence[str], known: Iterable[str]) -> list[str]:
    """Those asked for, each of which must be known.

    >>> choose("row", ["EWK"], ["EWC", "SI"])
    Traceback (most recent call last):
    ...
    ValueError: There is no row 'EWK', perhaps 'EWC': choose EWC, SI.
    """
    names = list(known)
    for name in asked:
        if name not in names:
            close = get_close_matches(name, names, 1)
            raise ValueError(
                f"There is no {what} {name!r}{f', perhaps {close[0]!r}' if close else ''}: choose {', '.join(names)}."
            )
    return list(asked)


def differences(job: Job, scale: str) -> list[str]:
    """What is done otherwise than in the paper: the job's sentences, and whatever the scale's settings change.

    >>> from gateon.reproduce import JOBS
    >>> [sentence for sentence in differences(JOBS["table-1"], "quick") if sentence.startswith("steps")]
    ['steps: 60 (the paper: 250).']
    """
    size, full = job.scale(scale), job.scales["paper"]
    changed = [
        f"{name}: {_shown(size.fields[name])} (the paper: {_shown(full.fields.get(name, 'as the preset has it'))})."
        for name in size.fields
        if size.fields[name] != full.fields.get(name)
    ]
    for stream, own in size.streams.items():
        printed = dict(full.fields) | dict(full.streams.get(stream, {}))
        changed += [
            f"{stream}: {name} {_shown(value)} (the paper: {_shown(printed.get(name, 'its default'))})."
            for name, value in own.items()
            if stream in (full.streams or job.streams) and value != printed.get(name)
        ]
    labels = ", ".join(row.label for row in job.rows if row.narrow)
    for name, value in size.narrow.items() if labels else ():
        changed.append(
            f"{name}: {_shown(value)} in the rows {labels}, which would take too long at full size."
        )
    for row in job.rows:
        printed = dict(full.fields) | dict(row.fields)
        for place in (scale, *(f"{stream} at {scale}" for stream in job.streams)):
            if row.where.get(place):
                parts = (
                    f"{name} {_shown(v)} ({_shown(printed.get(name, 'its default'))})"
                    for name, v in row.where[place].items()
                )
                where = f" on {place.removesuffix(f' at {scale}')}" if place != scale else ""
                changed.append(
                    f"{row.label}{where}: {', '.join(parts)}; in brackets what scale paper has."
                )
    if size.alone is not None and job.measures and "accuracy_deviation" in job.measures:
        first = f"networks that learned one of the first {size.alone} tasks each"
        apart = any(row.fields.get("method") == "isolated" for row in job.rows)
        changed.append(
            f"The accuracy deviation is against {f'the row Isolated, or where it was not run {first}' if apart else first}."
        )
    if size.plain and any("deviation" in measure for measure in job.measures):
        others = ", ".join(f"{name} {_shown(value)}" for name, value in size.plain.items())
        changed.append(f"Networks that learn one task each have {others}.")
    return [*job.differences, *changed]


def settings(specification: Specification) -> dict[str, Any]:
    """What decides a result, apart from the seed."""
    return {name: value for name, value in specification.to_dict().items() if name != "seed"}


def folder_of(specification: Specification, folder: Path) -> Path:
    """Where a run is kept: whatever decides its result decides the name, so that none is out of date."""
    return folder / specification.key()


def _specification(
    job: Job, scale: str, row: Row, column: str, stream: str, changes: Fields
) -> Specification | None:
    size = job.scale(scale)
    if row.scales and scale not in row.scales:
        return None
    asked = (
        {"stream": stream}
        | dict(size.fields)
        | dict(job.columns[column])
        | dict(job.streams[stream])
    )
    asked |= size.streams.get(stream, {})
    asked |= row.fields
    for place in (stream, scale, f"{stream} at {scale}"):
        asked |= row.where.get(place, {})
    if row.narrow:
        asked |= size.narrow
    asked |= changes
    if row.times > 1 and asked.get("tasks"):
        asked["tasks"] *= row.times
    known = {"settings", *legacy.NAMES}
    if asked.get("method") not in METHODS or not asked.keys() <= known:
        return None
    return Specification.from_options(asked)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        same = len(set(value)) == 1
        return f"{len(value)} x {value[0]}" if same else " x ".join(map(str, value))
    return str(value)
