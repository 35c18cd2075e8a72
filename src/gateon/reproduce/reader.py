"""The files in `tables/`, read and checked.

A file is named like its table and lies in the folder of its group. Options stand in sections, or
under dotted names, as in any specification:

    title = "..."                    measures, series, deviations, printed, figure, look, headline
    like = "table-1"                 whatever this file does not say is taken from there
    streams = ["permuted-mnist"]     [on.STREAM]: options on one stream only
    [columns.NAME]                   options
    [scales.NAME]                    options; seeds, alone, columns, streams, [on.STREAM], [plain],
                                     [narrow]
    [[rows]]                         options; label (else made of the options), printed_as, columns,
                                     streams, scales, times, narrow, [on.STREAM], [at.SCALE],
                                     [at.SCALE.on.STREAM]
                                     or: from = "table-1", labels = [...]
    [[paper]]                        source, streams, measures, rows: a number for every stream and
                                     measure in turn, "-" where there is none; shown = false keeps
                                     numbers that stand beside no row of ours
    [[claims]], [[targets]]          says, check, because, paper, and what the check asks for
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

from ..options.kinds import nearest
from ..runs.resolve import SECTIONS, dotted
from ..streams.registry import entry as stream_entry
from . import draw, inside
from .catalogue import names
from .checks import CHECKS, wanted_words
from .measures import MEASURES, SERIES
from .table import SCALES, Claim, Numbers, Options, Row, Scale, Table, choose

__all__ = ["label_of", "load", "read_table"]

Found = dict[str, Any]

# Key -> its kind; (kind,) is a list of such.
TABLE_KEYS: dict[str, Any] = {
    **dict.fromkeys(("title", "like", "printed", "figure", "look", "headline"), str),
    **dict.fromkeys(("streams", "measures", "series", "deviations"), (str,)),
    **dict.fromkeys(("on", "columns", "scales"), dict),
    **dict.fromkeys(("rows", "paper", "claims", "targets"), (dict,)),
}
SCALE_KEYS: dict[str, Any] = {
    **dict.fromkeys(("seeds", "alone"), int),
    **dict.fromkeys(("columns", "streams"), (str,)),
    **dict.fromkeys(("plain", "narrow", "on", *SECTIONS), dict),
}
ROW_KEYS: dict[str, Any] = {
    **dict.fromkeys(("label", "printed_as", "narrow", "from"), str),
    **dict.fromkeys(("columns", "streams", "scales", "labels"), (str,)),
    **dict.fromkeys(("on", "at", *SECTIONS), dict),
    "times": int,
}
PAPER_KEYS: dict[str, Any] = {
    "source": str,
    "streams": (str,),
    "measures": (str,),
    "rows": dict,
    "shown": bool,
}
WORDS = {str: "a string", int: "a whole number", bool: "true or false", dict: "a table"}


@cache
def load(name: str) -> Table:
    """A table by its name.

    >>> load("table-1").title
    'Ten tasks of MNIST: continual accuracy of GateON and other methods'
    """
    return read_table(names()[name])


def read_table(path: Path) -> Table:
    """A table from a file; a mistake in it is a `ValueError` that names file and place."""
    try:
        return _table(path)
    except (KeyError, ValueError, OSError) as reason:
        words = f"{reason.args[0]!r} is missing." if isinstance(reason, KeyError) else str(reason)
        raise ValueError(f"{path.name}: {words}") from None


def _own(path: Path) -> Found:
    """What a file says."""
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    _check("The file", found, TABLE_KEYS)
    return found


def _content(path: Path) -> Found:
    """What a file says, and beyond that what the file it is like says."""
    found = _own(path)
    if "like" not in found:
        return found
    other = _content(_file(found.pop("like"), path))
    own_only = {"claims", "targets", "headline"}
    merged = {name: value for name, value in other.items() if name not in own_only} | found
    merged["scales"] = other.get("scales", {}) | found.get("scales", {})
    return merged


def _file(name: str, asking: Path) -> Path:
    """The file of another table: one beside the file that asks for it, or one of gateon's."""
    known = names() | {file.stem: file for file in asking.parent.glob("*.toml")}
    if name not in known:
        raise ValueError(f"There is no table {name!r}{nearest(name, known)}.")
    return known[name]


def _table(path: Path) -> Table:
    found = _content(path)
    rows = tuple(row for one in found["rows"] for row in _rows(one, path))
    table = Table(
        name=path.stem,
        group=path.parent.name,
        title=found["title"],
        rows=rows,
        columns={name: dotted(options) for name, options in found["columns"].items()},
        streams=tuple(found["streams"]),
        scales={name: _scale(name, one) for name, one in found["scales"].items()},
        on=_on(found.get("on", {})),
        paper=_numbers(found.get("paper", ()), rows if "paper" in _own(path) else None),
        printed=found.get("printed", "the paper"),
        measures=tuple(found.get("measures", ())),
        series=tuple(found.get("series", ())),
        deviations=tuple(found.get("deviations", ())),
        figure=found.get("figure", ""),
        look=found.get("look", ""),
        headline=found.get("headline", ""),
    )
    _check_names(table)
    claims, targets = (
        tuple(_claim(one, table) for one in found.get(name, ())) for name in ("claims", "targets")
    )
    return replace(table, claims=claims, targets=targets)


def _rows(found: Found, path: Path) -> list[Row]:
    """One row, or some of another table."""
    where = f"The row {found.get('label', found.get('from', '?'))!r}"
    _check(where, found, ROW_KEYS)
    if "from" in found:
        file = _file(found["from"], path)
        others = {row.label: row for one in _content(file)["rows"] for row in _rows(one, file)}
        for label in found["labels"]:
            if label not in others:
                raise ValueError(f"{found['from']} has no row {label!r}{nearest(label, others)}.")
        return [others[label] for label in found["labels"]]
    narrow = found.get("narrow", "")
    if narrow not in ("", "instead", "as well"):
        raise ValueError(f"{where}: narrow must be 'instead' or 'as well', got {narrow!r}.")
    options = _options(found)
    if "method.name" not in options:
        raise ValueError(f"{where} has no method.name.")
    at = {name: dict(one) for name, one in found.get("at", {}).items()}
    at_on = {name: _on(one.pop("on")) for name, one in at.items() if "on" in one}
    choose("scale", list(at), SCALES)
    plain = {name: tuple(found.get(name, ())) for name in ("columns", "streams", "scales")}
    row = Row(
        label=found.get("label", label_of(options)),
        options=options,
        printed_as=found.get("printed_as", ""),
        times=found.get("times", 1),
        narrow=narrow,
        on=_on(found.get("on", {})),
        at={name: dotted(options) for name, options in at.items()},
        at_on=at_on,
        **plain,
    )
    return [row]


def label_of(options: Options) -> str:
    """A row that has no other name.

    >>> label_of({"method.name": "ewc", "method.strength": 30.0, "training.lr": 0.1})
    'ewc: strength 30.0, lr 0.1'
    """
    words = [
        f"{name.rpartition('.')[2]} {value}"
        for name, value in options.items()
        if name != "method.name"
    ]
    return f"{options['method.name']}: {', '.join(words)}" if words else options["method.name"]


def _scale(name: str, found: Found) -> Scale:
    _check(f"The scale {name}", found, SCALE_KEYS)
    return Scale(
        options=_options(found),
        seeds=found.get("seeds", 1),
        alone=found.get("alone"),
        plain=dotted(found.get("plain", {})),
        narrow=dotted(found.get("narrow", {})),
        columns=tuple(found.get("columns", ())),
        streams=tuple(found.get("streams", ())),
        on=_on(found.get("on", {})),
    )


def _options(found: Found) -> Options:
    return dotted({section: found[section] for section in SECTIONS if section in found})


def _on(found: Found) -> dict[str, Options]:
    """Options by stream, each of which must exist."""
    for name in found:
        stream_entry(name)
    return {name: dotted(options) for name, options in found.items()}


def _numbers(blocks: Sequence[Found], rows: Sequence[Row] | None) -> Numbers:
    """The paper's numbers that are shown, each of which must be of a row, if rows are given."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    known = {row.printed_as or row.label for row in rows or ()}
    for block in blocks:
        where = f"The paper's numbers from {block.get('source', '?')!r}"
        _check(where, block, PAPER_KEYS)
        places = list(product(block["streams"], block["measures"]))
        for row, numbers in block["rows"].items():
            if len(numbers) != len(places):
                raise ValueError(
                    f"{where}: {row!r} has {len(numbers)} numbers, expected {len(places)}."
                )
            if not block.get("shown", True):
                continue
            if rows is not None and row not in known:
                raise ValueError(f"{where}: there is no row {row!r}{nearest(row, known)}.")
            for (stream, measure), number in zip(places, numbers, strict=True):
                of_stream = found.setdefault(row, {}).setdefault(stream, {})
                if number != "-":
                    of_stream[measure] = float(number)
    return {
        row: {stream: values for stream, values in streams.items() if values}
        for row, streams in found.items()
    }


def _claim(found: Found, table: Table) -> Claim:
    where = f"The claim {found.get('says', '?')[:40]!r}"
    if found["check"] not in CHECKS:
        raise ValueError(
            f"{where}: there is no check {found['check']!r}{nearest(found['check'], CHECKS)}."
        )
    asked = {
        name: value
        for name, value in found.items()
        if name not in ("says", "because", "paper", "check")
    }
    check: Callable[..., Any] = CHECKS[found["check"]]
    parameters = list(inspect.signature(check).parameters.values())[1:]
    for name in asked:
        if name not in [one.name for one in parameters]:
            raise ValueError(f"{where}: the check {found['check']!r} takes no {name!r}.")
    for one in parameters:
        if one.default is one.empty and one.name not in asked:
            raise ValueError(f"{where}: the check {found['check']!r} needs {one.name!r}.")
    labels = {row.label for row in table.rows}
    words = {
        "rows": labels,
        "row": labels,
        "other": labels,
        "streams": set(table.streams),
        "columns": set(table.columns),
        "column": set(table.columns),
    }
    for name in asked.keys() & words.keys():
        for word in [asked[name]] if isinstance(asked[name], str) else asked[name]:
            if word not in words[name]:
                raise ValueError(f"{where}: {name} names {word!r}, which the table does not have.")
    return Claim(
        says=found["says"],
        check=partial(check, **asked),
        paper=found.get("paper", "-"),
        wanted=wanted_words(found["check"], asked),
        because=found.get("because", ""),
    )


def _check_names(table: Table) -> None:
    """Whatever is named must be there; labels must differ."""
    choose("measure", [*table.measures, *[table.headline] * bool(table.headline)], MEASURES)
    choose("series", table.series, SERIES)
    choose("figure", [table.figure] * bool(table.figure), draw.__all__)
    choose("look", [table.look] * bool(table.look), inside.__all__)
    labels = [row.label for row in table.rows]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"There are two rows {label!r}.")
    streams = [*table.on, *(s for scale in table.scales.values() for s in scale.streams)]
    columns = [c for scale in table.scales.values() for c in scale.columns]
    streams += [s for row in table.rows for s in row.streams]
    columns += [c for row in table.rows for c in row.columns]
    for what, asked, known in (
        ("stream", streams, table.streams),
        ("column", columns, table.columns),
    ):
        for name in asked:
            if name not in known:
                raise ValueError(
                    f"There is no {what} {name!r}{nearest(name, list(known))} in this table."
                )


def _check(where: str, found: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Whether every key is known and of its kind."""
    for name, value in found.items():
        if name not in kinds:
            raise ValueError(f"{where} has no key {name!r}{nearest(name, kinds)}.")
        kind = kinds[name]
        if isinstance(kind, tuple):
            if not isinstance(value, list) or not all(isinstance(one, kind[0]) for one in value):
                raise ValueError(f"{where}: {name} must be a list, each {WORDS[kind[0]]}.")
        elif not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"{where}: {name} must be {WORDS[kind]}, got {value!r}.")
