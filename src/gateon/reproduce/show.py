"""A record of a table as Markdown: the paper's numbers and ours side by side, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..runs.identity import NUMERICS
from .findings import Content, entry_of, hidden, short
from .measures import MEASURES

__all__ = ["OLD_NOTE", "cell", "has_old", "markdown", "page"]

OLD = "*"
OLD_NOTE = f"{OLD} Measured with an earlier version of the numerics: not comparable."


def page(content: Content, figure: bool = False) -> str:
    """The page beside a record: figure, tables, deviations from the paper, command.

    A table for every stream and measure has a column for every preset; where there is one column
    only, a table for every stream has a column for every measure.

    Args:
        content: of the record.
        figure: whether figure.svg lies beside it.
    """
    parts = [
        f"# {content['title']}",
        f"Scale `{content['scale']}`. Made by `{content['command']}` ([record](record.json)).",
    ]
    if figure:
        parts.append(f"![{content['title']}](figure.svg)")
    for title, lines in _tables(content).items():
        parts += [f"**{title}**", markdown(lines)] if len(lines) > 1 else []
    if content["measures"]:
        parts.append(
            "Mean ± standard deviation (number of seeds); "
            "a dash where nothing was run, or the paper has no number."
        )
    if has_old(content):
        parts.append(OLD_NOTE)
    failed = [
        f"{e['row']}, {e['column']}, {short(e['stream'])}: {e['failed']}"
        for e in content["entries"]
        if "failed" in e
    ]
    lists = {"Deviations from the paper": content["differences"], "Failed": failed}
    for title, sentences in lists.items():
        if sentences:
            parts += [f"{title}:", "\n".join(f"- {sentence}" for sentence in sentences)]
    return "\n\n".join(parts) + "\n"


def cell(entry: Mapping[str, Any] | None, measure: str) -> str:
    """One place of a table.

    >>> accuracy = {"continual_accuracy": {"mean": 0.9781, "spread": 0.0004}}
    >>> cell({"seeds": [0, 1], "measures": accuracy}, "continual_accuracy")
    '97.81 ± 0.04 (2)'
    >>> cell(None, "continual_accuracy")
    '-'
    """
    found = None if entry is None else entry["measures"].get(measure)
    if entry is None or found is None:
        return "-" if entry is None or "failed" not in entry else "diverged"
    factor = MEASURES[measure][1]
    mean, digits = factor * found["mean"], 2 if factor == 100 else 0 if measure == "seconds" else 1
    seeds, mark = len(entry["seeds"]), OLD if _is_old(entry) else ""
    spread = f" ± {factor * found['spread']:.{digits}f}" if seeds > 1 else ""
    return f"{round(mean, digits) + 0.0:.{digits}f}{spread} ({seeds}){mark}"


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Cells as a Markdown table, the first line its head.

    >>> print(markdown([["a", "b"], ["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    head, *rest = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|---" * len(lines[0]) + "|", *rest])


def has_old(content: Content) -> bool:
    """Whether some of it was measured with other numerics."""
    return any(map(_is_old, content["entries"]))


def _is_old(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("numerics", 1) != NUMERICS)


def _tables(content: Content) -> dict[str, list[list[str]]]:
    """The lines of every table by its title."""
    run = {entry["column"] for entry in content["entries"]}
    columns = [c for c in content["columns"] if c in run] or content["columns"][:1]
    found: dict[str, list[list[str]]] = {}
    for stream in content["streams"]:
        if content["measures"] and len(content["columns"]) == 1:
            found[short(stream)] = _of_measures(content, stream, columns[0])
        else:
            for measure in content["measures"]:
                title = f"{short(stream)}: {MEASURES[measure][0]}"
                found[title] = _of_columns(content, stream, measure, columns)
    return found


def _of_columns(
    content: Content, stream: str, measure: str, columns: Sequence[str]
) -> list[list[str]]:
    lines = [["", content.get("printed", "the paper"), *(f"ours, {column}" for column in columns)]]
    for row in content["rows"]:
        ours = [entry_of(content, row, column, stream) for column in columns]
        printed = _printed(content, row, stream, measure)
        if printed != "-" or any(ours):
            cells = [cell(entry, measure) for entry in ours]
            lines.append([row + _width(content, ours), printed, *cells])
    return lines


def _of_measures(content: Content, stream: str, column: str) -> list[list[str]]:
    """Every measure beside the paper's number, if any row has one; then what the method needs."""
    heads, pick = [""], []
    for measure in content["measures"]:
        if any(measure in row.get(stream, {}) for row in content["paper"].values()):
            heads.append(f"{content.get('printed', 'the paper')}: {MEASURES[measure][0]}")
            pick.append((measure, True))
        heads.append(MEASURES[measure][0])
        pick.append((measure, False))
    lines = [[*heads, "replay", "own heads", "task label at test"]]
    for row in content["rows"]:
        entry = entry_of(content, row, column, stream)
        cells = [
            _printed(content, row, stream, m) if paper else cell(entry, m) for m, paper in pick
        ]
        known: Mapping[str, Any] = entry or {}
        needs = [_yes(known.get(name)) for name in ("replay", "heads", "label_at_test")]
        if entry is not None or any(text != "-" for text in cells):
            lines.append([row + _width(content, [entry]), *cells, *needs])
    return lines


def _printed(content: Content, row: str, stream: str, measure: str) -> str:
    number = content["paper"].get(row, {}).get(stream, {}).get(measure)
    return "-" if number is None else f"{number:g}"


def _width(content: Content, entries: Sequence[Mapping[str, Any] | None]) -> str:
    """The hidden units of the network, if not all rows have the same."""
    sizes = {hidden(entry) for entry in content["entries"]}
    mine = {hidden(entry) for entry in entries if entry is not None}
    return f" ({' x '.join(map(str, mine.pop()))})" if len(sizes) > 1 and len(mine) == 1 else ""


def _yes(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"
