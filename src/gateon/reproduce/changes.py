"""Other options for every run of a table: its results stand apart from those of the table itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..options.declared import Option
from ..options.kinds import checked, flag, words_of
from ..runs.resolve import options_for
from ..streams.registry import entry as stream_entry
from .deviations import shown
from .reader import label_of
from .table import Options, Row, Table

__all__ = ["changed", "options_of"]

# What decides which other options there are, and what a table compares.
FIXED = ("stream.name", "method.name", "network.kind")


def options_of(table: Table) -> dict[str, Option]:
    """The options that runs of a table have, by dotted name."""
    found: dict[str, Option] = {}
    for row in table.rows:
        for stream in row.streams or table.streams:
            kind = row.options.get("network.kind", stream_entry(stream).network)
            for section, options in options_for(stream, row.options["method.name"], kind).items():
                found |= {f"{section}.{name}": option for name, option in options.items()}
    return {name: option for name, option in found.items() if name not in FIXED}


def changed(table: Table, given: Options) -> tuple[Table, Options]:
    """A table with other options in every run, under a name and with labels that say so.

    The paper's numbers, claims and targets are not those of such a table. An option in which its
    rows differ, or after which a column is called, is refused: it is what the table compares.

    Args:
        table: which.
        given: options by dotted name; none leaves the table as it is.

    Returns:
        The table, and the options as their kinds have them.

    >>> from gateon.reproduce import load
    >>> changed(load("figure-availability"), {"method.epsilon": 0.5})[0].name
    'figure-availability-epsilon-0.5'
    """
    if not given:
        return table, {}
    known = options_of(table)
    values = {name: checked(name, value, known[name].kind) for name, value in given.items()}
    for name in values:
        _check_alike(table, name)
    words = {name: words_of(value, known[name].kind) for name, value in values.items()}
    short = {name: name.rpartition(".")[2] for name in values}
    parts = [f"{short[name]}-{'-'.join(own)}" for name, own in words.items()]
    told = ", ".join(f"{short[name]} {shown(value)}" for name, value in values.items())
    same = replace(
        table,
        name="-".join([table.name, *(re.sub(r"[^\w.,=-]+", "_", part) for part in parts)]),
        asked=" ".join([table.name, *(f"{flag(n)} {' '.join(own)}" for n, own in words.items())]),
        title=f"{table.title}; with {told}",
        rows=tuple(_renamed(row, values) for row in table.rows),
        deviations=(*table.deviations, f"In every run: {told}."),
        paper={},
        claims=(),
        targets=(),
        headline="",
    )
    return same, values


def _renamed(row: Row, values: Mapping[str, Any]) -> Row:
    """A row that is called after an option is called after its new value."""
    own = values.keys() & row.options.keys()
    options = {**row.options, **{name: values[name] for name in own}}
    return replace(row, label=label_of(options) if own else row.label, options=options)


def _check_alike(table: Table, name: str) -> None:
    """Raise ValueError if rows differ in an option, or a column is called after it."""
    column = next((c for c, options in table.columns.items() if name in options), None)
    if column is not None:
        raise ValueError(
            f"The column {column!r} of {table.name} stands for its {name}: leave {flag(name)} out."
        )
    found = [[layer[name] for layer in _layers(row) if name in layer] for row in table.rows]
    every = [value for own in found for value in own]
    if any(value != every[0] for value in every) or 0 < sum(map(bool, found)) < len(found):
        values = ", ".join(dict.fromkeys(map(shown, every)))
        raise ValueError(
            f"The rows of {table.name} differ in {name} ({values}): it is what they compare. "
            f"Choose some of them with --rows, and leave {flag(name)} out."
        )


def _layers(row: Row) -> list[Options]:
    """Everything that sets options of a row."""
    on = [options for by_stream in row.at_on.values() for options in by_stream.values()]
    return [row.options, *row.on.values(), *row.at.values(), *on]
