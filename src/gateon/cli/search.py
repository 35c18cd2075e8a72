"""gateon search."""

from __future__ import annotations

import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Literal

from rich.console import Console

from ..report.fitting import fitted
from ..search.asked import Aim, Search, methods_in
from ..search.record import about_best, rows_of
from ..search.search import search_settings
from ..storage.files import printable
from ..workers.engine import Engine
from . import printing
from .home import home
from .parse import JSON, Command, Out
from .specified import Asked, short_name, specified

__all__ = ["command", "prepare"]


def command(
    asked: Asked,
    over: str = "",
    trials: int = 20,
    aim: Aim = "continual_accuracy",
    sampler: Literal["tpe", "random", "grid"] = "tpe",
    prune: Literal["median", "none"] = "median",
    out: Out = None,
    workers: int | None = None,
    on: str | None = None,
    gpus: float = 0.0,
    as_json: JSON = False,
    quiet: bool = False,
) -> None:
    """Search for the best settings of a method, on validation data.

    Test data are never looked at. The best settings, all trials and the ends of ranges that the
    best touches are written to search.json and search.md; options that are not searched are those
    given here.

    Args:
        asked: what to run.
        over: what is searched, separated by commas: ranges as in method.rate=0.001..0.3:log or
            training.batch=100..500, and choices as in method.name=ewc|si or
            "network.hidden=400 400|1000".
        trials: how many settings are tried; more than before adds to a search.
        aim: what is best: the figure of a run.
        sampler: tpe proposes more of what was good, random anything, grid every combination.
        prune: median ends a trial whose accuracy after a task is below the median of the others.
        out: directory of the search; runs/search-STREAM-METHOD by default. With --on ray also a
            URL, such as s3://bucket/search. The same command continues a search.
        workers: how many runs at once, each in a process with one thread and a core of its own;
            by default one after another in this process.
        on: ray, ray://HOST:PORT or ray:HOST:PORT: runs are tasks of a Ray cluster, and go on
            elsewhere if a node is lost. --out must be a directory that all nodes share, or a URL.
        gpus: of each run on Ray; a fraction shares one.
        as_json: print only the record, as JSON.
        quiet: show no progress.
    """
    given = asked.given
    if given.get("measuring.part", "validation") != "validation":
        raise ValueError("A search never looks at test data: leave --measuring.part out.")
    own = {n: v for n, v in given.items() if n.startswith("method.") and n != "method.preset"}
    own.pop("method.name", None)
    common = {name: value for name, value in given.items() if name not in own}
    base = asked.start.with_options(common)
    search = Search.of(base, over, own, aim=aim, sampler=sampler, prune=prune)
    name = f"search-{short_name(base.stream.name)}-{base.method.name}"
    with home(out or Path("runs") / name, on) as at:
        content = search_settings(
            search,
            trials,
            at.folder,
            engine=Engine(workers, on, gpus, base.training.threads or 1, at.store),
            command=shlex.join(["gateon", *sys.argv[1:]]),
            progress=partial(printing.progress, quiet),
            board=partial(printing.board, quiet),
        )
        written = at.shown(at.folder / "search.json")
    if as_json:
        print(json.dumps(content))
        return
    titles, cells = rows_of(content)
    console = Console()
    console.print(fitted(titles, cells, console.width))
    print("percent, on validation data")
    for line in about_best(content):
        print(printable(line))
    print(f"record: {written}")


def prepare(words: list[str]) -> tuple[Command, list[str]]:
    """Its options are those of the stream, and of the method or methods among the words."""
    place = next((n for n, word in enumerate(words[:-1]) if word == "--over"), None)
    equals = next((word[7:] for word in words if word.startswith("--over=")), "")
    methods = methods_in(equals if place is None else words[place + 1], "")
    return specified(command, words, [name for name in methods if name])
