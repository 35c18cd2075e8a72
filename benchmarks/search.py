"""Trials of settings on validation data: the rows of a file in benchmarks/search/, each run once.

    python benchmarks/search.py cifar-wide
    python benchmarks/search.py methods --only "ewc: strength 30.0, lr 0.002, norm context"

A trial that is in the record already is not run again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import measure
from gateon.reproduce import cells, read_table
from gateon.runs.specification import Specification
from gateon.runs.specified import run_specification

ROOT = Path(__file__).parent.parent
FILES = {file.stem: file for file in sorted((ROOT / "benchmarks" / "search").glob("*.toml"))}


def measured(specification: Specification) -> dict[str, Any]:
    """What a trial found."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            record = run_specification(specification, Path(folder) / "run")
    except FloatingPointError:  # a result too: these settings do not work
        return {"continual": None}
    sites = record.availability[-1].values()
    return {
        "continual": record.summary["continual_accuracy"],
        "immediate": record.summary["immediate_accuracy"],
        "final": record.summary["final_accuracy"],
        "forgetting": record.summary["forgetting_rate"],
        "frozen": max((site["frozen"] for site in sites), default=0.0),
        "room": min((site["room"] for site in sites), default=1.0),
        "seconds": sum(seconds["train"] for seconds in record.seconds),
    }


def words(label: str) -> frozenset[str]:
    """A label in any order, also as early records have it.

    >>> words("xdg: lr 0.005, settings off=0.6") == words("xdg: off 0.6, lr 0.005")
    True
    """
    plain = label.replace("settings ", "").replace("=", " ").replace(":", ",")
    return frozenset(word.strip() for word in plain.split(","))


def place(row: dict[str, Any], stream: str) -> tuple[frozenset[str], str]:
    """The trial of a row in the record, and the stream it was on."""
    label = row["label"] if "label" in row else f"{row['method']}: {row['settings']}"
    return words(label), row.get("stream", stream)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=FILES)
    parser.add_argument("--only", default="", help="these trials only, separated by semicolons")
    parser.add_argument("--streams", nargs="*", default=(), help="on these streams only")
    parser.add_argument("--dry", action="store_true", help="list the trials, and run nothing")
    options = parser.parse_args()
    table = read_table(FILES[options.name])
    path = ROOT / "results" / "search" / options.name / "record.json"
    rows = json.loads(path.read_text())["result"] if path.exists() else []
    done = {place(row, table.streams[0]) for row in rows}
    asked = [label for label in options.only.split(";") if label]
    settings = {"title": table.title, **table.scales["cpu"].options}
    for cell in cells(table, "cpu", rows=asked, streams=options.streams):
        label, _, stream = cell.place
        assert cell.specification is not None
        finished = (words(label), stream) in done
        if options.dry:
            print(f"{label}, {stream}: {'in the record' if finished else 'to be run'}")
        elif not finished:
            rows.append({"label": label, "stream": stream, **measured(cell.specification)})
            print(json.dumps(rows[-1]), flush=True)
            command = f"python benchmarks/search.py {options.name}"
            measure.write(f"search/{options.name}", settings, rows, command)


if __name__ == "__main__":
    main()
