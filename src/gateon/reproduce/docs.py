"""docs/results.md and the tables beside the records, made of the records in results/ alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runs.environment import environment
from ..storage.checkpoint import whole_file
from . import draw
from .catalogue import names
from .collect import read
from .findings import NOT_MEASURED, Content, Finding, entry_of, short
from .measures import MEASURES
from .reader import load
from .show import OLD_NOTE, cell, has_old, markdown, page
from .table import SCALES, Claim, Table

__all__ = ["pages", "write_pages", "write_targets"]

VERDICT = {True: "holds", False: "does not hold", None: "not measured"}
MET = {True: "met", False: "missed", None: "not measured"}
LARGEST_FIRST = tuple(reversed(SCALES))
Records = Mapping[tuple[str, str], Content]  # by table and scale


def write_pages(results: Path, docs: Path) -> Path:
    """Write the page of results, and a table and a figure beside every record.

    Args:
        results: where the records are.
        docs: the page.
    """
    for path, text in pages(results, docs).items():
        _write(path, text)
    for (name, scale), content in _records(results).items():
        table = load(name)
        if table.figure and content["entries"]:
            getattr(draw, table.figure)(content, table.place(results, scale) / "figure")
    return docs


def pages(results: Path, docs: Path) -> dict[Path, str]:
    """Every file that is made of the records, and its text."""
    records = _records(results)
    if not records:
        raise ValueError(
            f"There is no record of gateon reproduce in {results}: "
            "make one, such as gateon reproduce table-1."
        )
    found = {docs: _results_page(records, results, docs)}
    for (name, scale), content in records.items():
        place = load(name).place(results, scale)
        found[place / "table.md"] = page(content, (place / "figure.svg").exists())
    for path in _searches(results):
        found[path.parent / "table.md"] = _search(path)
    return found


def write_targets(results: Path, scale: str) -> Path:
    """The targets and whether the records meet them: results/paper/targets-SCALE."""
    records = _records(results)
    folder = results / "paper" / f"targets-{scale}"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"# Targets at scale `{scale}`", markdown(_targets(records, scale))]
    made = f"Made by `gateon reproduce targets --scale {scale}`."
    rows = [_as_row(claim, finding) for claim, finding in _target_findings(records, scale)]
    record = {"name": "targets", "scale": scale, "result": rows, "environment": environment()}
    _write(folder / "record.json", json.dumps(record, indent=1) + "\n")
    _write(folder / "table.md", "\n\n".join([*lines, made]) + "\n")
    return folder


def _records(results: Path) -> dict[tuple[str, str], Content]:
    """The records of all tables, of each that of the largest scale first."""
    places = {
        (name, scale): load(name).place(results, scale) / "record.json"
        for name in names()
        for scale in LARGEST_FIRST
    }
    return {key: read(path) for key, path in places.items() if path.exists()}


def _results_page(records: Records, results: Path, docs: Path) -> str:
    def link(name: str, scale: str, file: str) -> str:
        return _relative(load(name).place(results, scale) / file, docs)

    headlines = {
        load(name).title: [
            markdown(_headline(load(name), content)),
            f"[Everything measured]({link(name, scale, 'table.md')}), "
            f"[record]({link(name, scale, 'record.json')}), "
            f"`gateon reproduce {name} --scale {scale}`.",
        ]
        for (name, scale), content in records.items()
        if scale == "cpu" and load(name).headline
    }
    tables = [
        f"- [{load(name).title}]({link(name, scale, 'table.md')}): `{name}`, scale {scale}"
        for name, scale in records
    ]
    sections = {
        "Which of the paper's claims hold": [
            "Each by the record of the largest scale at which it was measured; "
            "what is small says little about what is large.",
            markdown(_claims(records)),
        ],
        "Targets": [
            "On two cores and full MNIST: scale `cpu`.",
            markdown(_targets(records, "cpu")),
        ],
        **headlines,
        "All tables and figures": ["\n".join(tables)],
        "Trials of settings": [_trials(results, docs)] if _searches(results) else [],
    }
    shown = {title: parts for title, parts in sections.items() if parts}
    scales = "; ".join(f"`{name}`, {words}" for name, words in SCALES.items())
    parts = [
        "# Results",
        "Made of the records in `results/` by `gateon reproduce docs`; nothing here is written by "
        f"hand. Scales: {scales}.",
        *[OLD_NOTE] * any(map(has_old, records.values())),
        "\n".join(f"- [{title}](#{_anchor(title)})" for title in shown),
    ]
    for title, texts in shown.items():
        parts += [f"## {title}", *texts]
    return "\n\n".join(parts) + "\n"


def _anchor(title: str) -> str:
    """How a title is linked to.

    >>> _anchor("Which of the paper's claims hold")
    'which-of-the-papers-claims-hold'
    """
    kept = (letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return "".join(kept).replace(" ", "-")


def _claims(records: Records) -> list[list[str]]:
    lines = [["the paper says", "our figure", "scale", "verdict"]]
    for name in names():
        for claim in load(name).claims:
            scale, finding = _largest(claim, name, records)
            verdict = VERDICT[finding.holds]
            if claim.because and finding.holds is False:
                verdict += f": {claim.because}"
            lines.append([claim.says, finding.figure, scale, verdict])
    return lines


def _largest(claim: Claim, name: str, records: Records) -> tuple[str, Finding]:
    """What the record of the largest scale says of a claim."""
    for scale in LARGEST_FIRST:
        finding = claim.check(records.get((name, scale)))
        if finding.holds is not None:
            return scale, finding
    return "-", NOT_MEASURED


def _target_findings(records: Records, scale: str) -> list[tuple[Claim, Finding]]:
    return [
        (claim, claim.check(records.get((name, scale))))
        for name in names()
        for claim in load(name).targets
    ]


def _targets(records: Records, scale: str) -> list[list[str]]:
    lines = [["", "the paper", "wanted", "ours", ""]]
    for row in (_as_row(*found) for found in _target_findings(records, scale)):
        met = f"{row['met']}: {row['because']}" if row["because"] else row["met"]
        lines.append([row["target"], row["paper"], row["wanted"], row["ours"], met])
    return lines


def _as_row(claim: Claim, finding: Finding) -> dict[str, str]:
    return {
        "target": claim.says,
        "paper": claim.paper,
        "wanted": claim.wanted,
        "ours": finding.figure,
        "met": MET[finding.holds],
        "because": claim.because if finding.holds is False else "",
    }


def _headline(table: Table, content: Content) -> list[list[str]]:
    """One measure on all streams; of the presets, only the best."""
    measure, columns = table.headline, [c for c in content["columns"] if c == "best"]
    columns = columns or content["columns"]
    several, printed = len(columns) > 1, content.get("printed", "the paper")
    heads, places = [MEASURES[measure][0]], []
    for stream in content["streams"]:
        run = [c for c in columns if any(_of(e, c, stream) for e in content["entries"])]
        numbers = (row.get(stream, {}) for row in content["paper"].values())
        if run and any(measure in found for found in numbers):
            heads.append(f"{short(stream)}: {printed}")
            places.append((stream, ""))
        heads += [f"{short(stream)}: {c}" if several else short(stream) for c in run]
        places += [(stream, column) for column in run]
    lines = [heads]
    for row in content["rows"]:
        cells = [_headline_cell(content, row, *place, measure) for place in places]
        if any(text != "-" for text, (_, column) in zip(cells, places, strict=True) if column):
            lines.append([row, *cells])
    return lines


def _of(entry: Mapping[str, Any], column: str, stream: str) -> bool:
    return bool(entry["column"] == column and entry["stream"] == stream)


def _headline_cell(content: Content, row: str, stream: str, column: str, measure: str) -> str:
    if column:
        return cell(entry_of(content, row, column, stream), measure)
    number = content["paper"].get(row, {}).get(stream, {}).get(measure)
    return "-" if number is None else f"{number:g}"


def _trials(results: Path, docs: Path) -> str:
    links = {path.parent.name: path.parent / "table.md" for path in _searches(results)}
    about = results / "search" / "README.md"
    links |= {"what they say": about} if about.exists() else {}
    shown = ", ".join(f"[{name}]({_relative(path, docs)})" for name, path in links.items())
    return f"On validation data: {shown}."


def _searches(results: Path) -> list[Path]:
    return sorted(results.glob("search/*/record.json"))


def _search(path: Path) -> str:
    """The record of a search: one row for every setting that was tried."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        rows: list[dict[str, Any]] = list(record["result"])
        measured = list(dict.fromkeys(name for row in rows for name in row if name != "commit"))
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise ValueError(
            f"{path} is no record of a search, or a damaged one: move it away."
        ) from reason
    lines = [measured, *([_cell(row.get(name)) for name in measured] for row in rows)]
    name = path.parent.name
    made = f"Made by `{record['command']}` at the commit that the [record](record.json) names."
    return f"# Trials: {name}\n\n{made}\n\n{markdown(lines)}\n"


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _relative(path: Path, page: Path) -> str:
    return Path(os.path.relpath(path, page.parent)).as_posix()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")
