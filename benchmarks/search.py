"""Searches for settings on validation data: one `gateon search` for each method and stream of a file.

    python benchmarks/search.py benchmarks/search/methods.toml --workers 2
    python benchmarks/search.py benchmarks/search/methods.toml --only ewc si --trials 4 --dry

A file names streams, methods, and options of all methods and of each: a value, or a range as in
`--over`. Every method gets the same number of trials on every stream. A search that was stopped goes
on with the same command; its trials are in runs/search/.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measure
from gateon.runs.specification import Specification
from gateon.search.asked import Search
from gateon.search.record import about_best
from gateon.search.search import search_settings
from gateon.workers.engine import Engine

RUNS = Path("runs") / "search"


def searches(asked: dict[str, Any]) -> Iterator[tuple[str, str, Search]]:
    """Every stream and method of a file, and what is searched."""
    for stream in asked["streams"]:
        for method, own in asked["methods"].items():
            options = {"stream.name": stream, "method.name": method, **asked["all"], **own}
            ranges = {n: v for n, v in options.items() if isinstance(v, str) and is_range(v)}
            fixed = {name: value for name, value in options.items() if name not in ranges}
            over = ",".join(f"{name}={words}" for name, words in ranges.items())
            yield stream, method, Search.of(Specification.from_options(fixed), over)


def is_range(words: str) -> bool:
    return ".." in words or "|" in words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="*", default=(), help="these methods only")
    parser.add_argument("--trials", type=int, help="of each search, instead of those of the file")
    parser.add_argument("--workers", type=int, help="how many trials at once")
    parser.add_argument("--dry", action="store_true", help="write no record")
    options = parser.parse_args()
    asked = tomllib.loads(options.file.read_text())
    trials, rows = options.trials or asked["trials"], []
    command = f"python benchmarks/search.py benchmarks/search/{options.file.name}"
    for stream, method, search in searches(asked):
        if options.only and method not in options.only:
            continue
        out = RUNS / options.file.stem / stream / method
        engine = Engine(options.workers, threads=search.base.training.threads or 1)
        content = search_settings(search, trials, out, engine=engine, command=command)
        best = content["best"]
        rows.append({"stream": stream, "method": method, "trials": len(content["trials"])})
        rows[-1] |= {"best": best["value"], "settings": best["settings"], "at ends": best["edges"]}
        print(f"{stream}, {method}: {best['value']}", *about_best(content), sep="\n    ")
        if not options.dry:
            settings = {"file": asked, "trials": trials, "part": "validation"}
            measure.write(f"search/{options.file.stem}", settings, rows, command)


if __name__ == "__main__":
    main()
