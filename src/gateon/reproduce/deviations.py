"""What is done differently from the paper, as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .table import Options, Row, Scale, Table

__all__ = ["deviations", "shown"]


def deviations(table: Table, scale: str) -> list[str]:
    """The table's own sentences, and whatever the settings of a scale change.

    >>> from gateon.reproduce import load
    >>> [said for said in deviations(load("table-1"), "quick") if said.startswith("steps")]
    ['steps: 60 (the paper: 250).']
    """
    size, full = table.scale(scale), table.scale("paper")
    return [
        *table.deviations,
        *_changed(size.options, full.options, "{name}: {value} (the paper: {printed})."),
        *_on_streams(table, size, full),
        *_narrow(table, size),
        *(said for row in table.rows for said in _of_row(table, row, scale)),
        *_alone(table, size),
    ]


def _changed(options: Options, printed: Options, sentence: str, **words: str) -> Iterator[str]:
    for name, value in options.items():
        if value != printed.get(name):
            known = shown(printed.get(name, "the default"))
            yield sentence.format(name=_short(name), value=shown(value), printed=known, **words)


def _on_streams(table: Table, size: Scale, full: Scale) -> Iterator[str]:
    """At scale quick a stream may stand in for all others: then there is nothing to compare."""
    for stream, own in size.on.items():
        if stream in (full.streams or table.streams):
            printed = {**full.options, **full.on.get(stream, {})}
            sentence = "{stream}: {name} {value} (the paper: {printed})."
            yield from _changed(own, printed, sentence, stream=stream)


def _narrow(table: Table, size: Scale) -> Iterator[str]:
    labels = ", ".join(row.label for row in table.rows if row.narrow)
    for name, value in size.narrow.items() if labels else ():
        yield (
            f"{_short(name)}: {shown(value)} in the rows {labels}, "
            "which would take too long at full size."
        )


def _of_row(table: Table, row: Row, scale: str) -> Iterator[str]:
    column = next(iter(table.columns.values())) if len(table.columns) == 1 else {}
    printed = {**table.scale("paper").options, **column, **row.options}
    own: dict[str, Options] = {"": row.at.get(scale, {})}
    own |= {f" on {stream}": options for stream, options in row.at_on.get(scale, {}).items()}
    for where, options in own.items():
        parts = [
            f"{_short(name)} {shown(value)} ({shown(printed.get(name, 'the default'))})"
            for name, value in options.items()
        ]
        if parts:
            yield f"{row.label}{where}: {', '.join(parts)}; in parentheses, at scale paper."


def _alone(table: Table, size: Scale) -> Iterator[str]:
    if size.alone is not None and "accuracy_deviation" in table.measures:
        first = f"networks that learned one of the first {size.alone} tasks each"
        apart = any(row.options["method.name"] == "isolated" for row in table.rows)
        against = f"the row Isolated or, where that was not run, {first}" if apart else first
        yield f"The accuracy deviation is against {against}."
    if size.plain and any("deviation" in measure for measure in table.measures):
        others = ", ".join(f"{_short(name)} {shown(v)}" for name, v in size.plain.items())
        yield f"Networks that learn one task each have {others}."


def _short(name: str) -> str:
    """An option without its section.

    >>> _short("training.lr"), _short("network.kind")
    ('lr', 'network')
    """
    section, _, option = name.rpartition(".")
    return section if option in ("kind", "name") else option


def shown(value: Any) -> str:
    """A value as a sentence has it.

    >>> shown([2000, 2000]), shown({"conv*": 0.1, "*": 0.2})
    ('2 x 2000', 'conv*=0.1,*=0.2')
    """
    if isinstance(value, list | tuple):
        same = len(set(value)) == 1
        return f"{len(value)} x {value[0]}" if same else " x ".join(map(str, value))
    if isinstance(value, Mapping):
        return ",".join(f"{name}={held}" for name, held in value.items())
    return str(value)
