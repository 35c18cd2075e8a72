"""A record of a job as Markdown: the paper's number and ours side by side, and what was done otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .measures import MEASURES

__all__ = ["cell", "entry_of", "hidden", "table", "value"]

Content = Mapping[str, Any]


def table(content: Content) -> str:
    """The whole page of a job: tables, differences in protocol, settings, command.

    One table for every stream and measure with a column for every preset; where a job has one
    column, a table for every stream.
    """
    parts = [
        f"# {content['title']}",
        f"Scale `{content['scale']}`. Made by `{content['command']}`.",
    ]
    columns = [
        c for c in content["columns"] if any(e["column"] == c for e in content["entries"])
    ] or content["columns"][:1]
    for stream in content["streams"]:
        if content["measures"] and len(content["columns"]) == 1:
            made = {_short(stream): _of_measures(content, stream, columns[0])}
        else:
            made = {
                f"{_short(stream)}: {MEASURES[m][0]}": _of_columns(content, stream, m, columns)
                for m in content["measures"]
            }
        for title, lines in made.items():
            parts += [f"**{title}**", _markdown(lines)] if len(lines) > 1 else []
    if content["measures"]:
        parts.append(
            "Mean ± standard deviation (number of seeds); a dash where nothing was run, or the paper has no number."
        )
    failed = [
        f"{e['row']}, {e['column']}, {_short(e['stream'])}: {e['failed']}"
        for e in content["entries"]
        if "failed" in e
    ]
    lists = {
        "Otherwise than in the paper": content["differences"],
        "Not to be run yet": content["waiting"],
        "Did not come to an end": failed,
    }
    for title, sentences in lists.items():
        if sentences:
            parts += [f"{title}:", "\n".join(f"- {sentence}" for sentence in sentences)]
    return "\n\n".join(parts) + "\n"


def value(
    content: Content,
    row: str,
    stream: str,
    measure: str = "continual_accuracy",
    column: str = "best",
) -> float | None:
    """The mean a job found in one place, as a share; None where there is none."""
    entry = entry_of(content, row, column, stream)
    found = None if entry is None else entry.get("measures", {}).get(measure)
    return None if found is None else float(found["mean"])


def entry_of(content: Content, row: str, column: str, stream: str) -> dict[str, Any] | None:
    """What was found in one place."""
    place = (row, column, stream)
    return next(
        (dict(e) for e in content["entries"] if (e["row"], e["column"], e["stream"]) == place), None
    )


def hidden(entry: Mapping[str, Any]) -> tuple[int, ...]:
    """The hidden units of an entry's network, layer by layer; none where it is not made of such layers."""
    return tuple(entry["settings"]["network"].get("hidden", ()))


def cell(entry: Mapping[str, Any] | None, measure: str) -> str:
    """One place of a table.

    >>> found = {"seeds": [0, 1], "measures": {"continual_accuracy": {"mean": 0.9781, "spread": 0.0004}}}
    >>> cell(found, "continual_accuracy"), cell(None, "continual_accuracy")
    ('97.81 ± 0.04 (2)', '-')
    """
    found = None if entry is None else entry["measures"].get(measure)
    if entry is None or found is None:
        return "-" if entry is None or "failed" not in entry else "diverged"
    factor = MEASURES[measure][1]
    mean, digits = factor * found["mean"], 2 if factor == 100 else 0 if measure == "seconds" else 1
    spread = f" ± {factor * found['spread']:.{digits}f}" if len(entry["seeds"]) > 1 else ""
    return f"{round(mean, digits) + 0.0:.{digits}f}{spread} ({len(entry['seeds'])})"


def _of_columns(
    content: Content, stream: str, measure: str, columns: Sequence[str]
) -> list[list[str]]:
    lines = [["", content.get("printed", "the paper"), *(f"ours, {column}" for column in columns)]]
    for row in content["rows"]:
        ours = [entry_of(content, row, column, stream) for column in columns]
        printed = _printed(content, row, stream, measure)
        if printed != "-" or any(ours):
            lines.append(
                [row + _width(content, ours), printed, *(cell(entry, measure) for entry in ours)]
            )
    return lines


def _of_measures(content: Content, stream: str, column: str) -> list[list[str]]:
    """Every measure beside the paper's number for it, if any row has one; at the end what the method needs."""
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
        needs = [
            _yes(None if entry is None else entry.get(name))
            for name in ("replay", "heads", "label_at_test")
        ]
        if entry is not None or any(text != "-" for text in cells):
            lines.append([row + _width(content, [entry]), *cells, *needs])
    return lines


def _printed(content: Content, row: str, stream: str, measure: str) -> str:
    number = content["paper"].get(row, {}).get(stream, {}).get(measure)
    return "-" if number is None else f"{number:g}"


def _width(content: Content, entries: Sequence[Mapping[str, Any] | None]) -> str:
    """The size of the network, where not all rows have the same: its hidden units."""
    sizes = {hidden(e) for e in content["entries"]}
    mine = {hidden(e) for e in entries if e is not None}
    return f" ({' x '.join(map(str, mine.pop()))})" if len(sizes) > 1 and len(mine) == 1 else ""


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *rest = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|---" * len(lines[0]) + "|", *rest])


def _yes(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def _short(stream: str) -> str:
    return stream.removesuffix("-mnist")
