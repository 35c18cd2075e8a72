"""What a table or figure is: rows x columns x streams at three scales, the paper's numbers, claims.

They are read from the files in `tables/`; see `reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..options.kinds import nearest
from .findings import Content, Finding

__all__ = ["SCALES", "Claim", "Numbers", "Options", "Row", "Scale", "Table", "choose"]

Options = Mapping[str, Any]  # by dotted name
Numbers = Mapping[str, Mapping[str, Mapping[str, float]]]  # row -> stream -> measure, in percent
SCALES = {
    "quick": "minutes, on 5,000 digits that need no network",
    "cpu": "hours on two cores, full MNIST",
    "paper": "the paper's sizes and steps, for a GPU",
}


@dataclass(frozen=True)
class Row:
    """One row of a table, or one line of a figure.

    Args:
        label: its name.
        options: its method and whatever else sets it apart; they go before all others.
        printed_as: its name in the paper's table, if it differs.
        columns: the columns it is run for; all if empty.
        streams: the streams it is run on; all if empty.
        scales: the scales it is run at; elsewhere only the paper's number is shown. All if empty.
        times: how many times as many tasks as the others.
        narrow: "instead": run in the narrower network of a scale that has one. "as well": a row of
            such scales only.
        on: options on one stream only.
        at: options at one scale only.
        at_on: options at one scale, on one stream only.
    """

    label: str
    options: Options
    printed_as: str = ""
    columns: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    scales: tuple[str, ...] = ()
    times: int = 1
    narrow: Literal["", "instead", "as well"] = ""
    on: Mapping[str, Options] = field(default_factory=dict)
    at: Mapping[str, Options] = field(default_factory=dict)
    at_on: Mapping[str, Mapping[str, Options]] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """How large a table is run.

    Args:
        options: of every run; a row whose method or network lacks one goes without it.
        seeds: how many.
        alone: how many tasks are also learned alone, for the accuracy deviation; None for all.
        plain: options of the networks that learn alone, where theirs differ.
        narrow: options of rows that cannot leave out units and so would take too long.
        columns: those run unless others are asked for; all if empty.
        streams: likewise the streams.
        on: options on one stream only.
    """

    options: Options
    seeds: int = 1
    alone: int | None = None
    plain: Options = field(default_factory=dict)
    narrow: Options = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    on: Mapping[str, Options] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, or a target of ours, and the check that decides it.

    Args:
        says: the sentence.
        check: reads the record of the table.
        paper: the paper's number, where it has one.
        wanted: what a target asks for.
        because: why it fails, shown only if it does.
    """

    says: str
    check: Callable[[Content | None], Finding]
    paper: str = "-"
    wanted: str = ""
    because: str = ""


@dataclass(frozen=True)
class Table:
    """A table or a figure.

    Args:
        name: as on the command line.
        group: of results, where its records are.
        title: what it is.
        rows: see `Row`.
        columns: options by name of the column; one for every preset for most.
        streams: their names.
        scales: see `Scale`.
        on: options on one stream only.
        measures: what the table shows; none for a figure.
        series: what is kept over tasks or steps, for a figure; see `gateon.reproduce.measures`.
        paper: the numbers to show beside ours.
        printed: whose numbers these are.
        deviations: what is done differently from the paper, as sentences; what the settings of
            a scale change is found out from them.
        figure: the function of `gateon.reproduce.draw` that draws it, if any.
        look: the function of `gateon.reproduce.inside` that looks into a network, instead of a run.
        headline: the measure shown on the page of results, if any.
        claims: of the paper that this table decides.
        targets: of ours that this table decides.
        asked: the words of `gateon reproduce` that ask for it; its name by default.
    """

    name: str
    group: str
    title: str
    rows: tuple[Row, ...]
    columns: Mapping[str, Options]
    streams: tuple[str, ...]
    scales: Mapping[str, Scale]
    on: Mapping[str, Options] = field(default_factory=dict)
    measures: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    paper: Numbers = field(default_factory=dict)
    printed: str = "the paper"
    deviations: tuple[str, ...] = ()
    figure: str = ""
    look: str = ""
    headline: str = ""
    claims: tuple[Claim, ...] = ()
    targets: tuple[Claim, ...] = ()
    asked: str = ""

    def scale(self, name: str) -> Scale:
        """Its settings at a scale."""
        return self.scales[choose("scale", [name], self.scales)[0]]

    def place(self, results: Path, scale: str) -> Path:
        """Where record, table and figure are: results/GROUP/NAME-SCALE."""
        return results / self.group / f"{self.name}-{scale}"

    def printed_numbers(self, row: Row) -> Mapping[str, Mapping[str, float]]:
        """The paper's numbers for a row, by stream and measure."""
        return self.paper.get(row.printed_as or row.label, {})


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
            hint = nearest(name, names)
            raise ValueError(f"There is no {what} {name!r}{hint}: choose {', '.join(names)}.")
    return list(asked)
