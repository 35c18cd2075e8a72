"""gateon reproduce."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

from .. import reproduce as reproduction
from ..learners.section import Training
from ..options.declared import declared
from ..options.kinds import checked
from ..runs.forecast import forecast
from ..runs.identity import check_clean
from ..runs.specification import Specification
from ..storage.files import printable
from ..workers.engine import Engine
from . import printing
from .given import given_options
from .home import home
from .parse import Command, Out, bound, own_options

__all__ = ["command", "prepare"]

Options = Mapping[str, Any]


def command(
    given: Options,
    name: Annotated[str, tyro.conf.arg(metavar="NAME")],
    scale: Literal["quick", "cpu", "paper"] = "quick",
    seeds: int | None = None,
    rows: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
    streams: tuple[str, ...] = (),
    out: Out = None,
    results: Path = reproduction.RESULTS,
    page: Path = Path("docs/results.md"),
    device: str = "cpu",
    threads: int | None = None,
    workers: int | None = None,
    on: str | None = None,
    gpus: float = 0.0,
    plan: bool = False,
    allow_dirty: bool = False,
    quiet: bool = False,
) -> None:
    """Reproduce a table or figure of the paper, next to the paper's numbers.

    NAME is one that `gateon list tables` shows, or all of them: all. Finished runs are not
    repeated, and stopped ones continue. Options of the runs, such as --epsilon 0.5 or
    --training.steps 100, go before those of the table; the results then stand apart, in a directory
    that has the options in its name. Of the records: targets compares them with our targets,
    docs writes the page of results, and the tables and figures beside the records.

    Args:
        given: options of the runs.
        name: the table or figure.
        scale: quick (minutes, 5,000 digits), cpu (hours on two cores) or paper (the paper's sizes
            and steps, for a GPU).
        seeds: the number of seeds; that of the scale by default.
        rows: only these rows, by name.
        columns: only these columns, such as best.
        streams: only these streams.
        out: directory of the runs, shared by all tables and figures; runs/reproduce by default.
            With --on ray also a URL, such as s3://bucket/runs.
        results: directory of the results: record.json, table.md and figure.svg.
        page: the file that docs writes.
        device: cpu, cuda, mps ...
        threads: the number of CPU threads; torch chooses by default.
        workers: how many runs at once, each in a process with as many threads as --threads says,
            or one; by default one after another in this process.
        on: ray, ray://HOST:PORT or ray:HOST:PORT: runs are tasks of a Ray cluster. --out must be
            a directory that all nodes share, or a URL.
        gpus: of each run on Ray; a fraction shares one.
        plan: list the runs and which of them are finished, at scale paper also forecast time and
            memory from two steps, and run nothing.
        allow_dirty: write a record although the source tree has changes that are not committed.
        quiet: show no progress.
    """
    checked("threads", threads, declared(Training)["threads"].kind)
    if threads is not None:
        torch.set_num_threads(threads)
    if name == "docs":
        print(printable(reproduction.write_pages(results, page)))
        return
    if name == "targets":
        print(printable(reproduction.write_targets(results, scale)))
        return
    known = reproduction.names()
    chosen = known if name == "all" else reproduction.choose("table or figure", [name], known)
    asked: dict[str, Any] = {"seeds": seeds, "rows": rows, "columns": columns, "streams": streams}
    on_device = {} if device == "cpu" else {"training.device": device}
    with home(out or reproduction.OUT, on, reads=plan) as at:
        engine = Engine(workers, on, gpus, threads or 1, None if plan else at.store)
        asked["out"] = at.folder
        if at.store is not None:
            at.store.fetch_all(at.folder / scale)
        for one in chosen:
            table, changes = reproduction.changed(reproduction.load(one), given)
            asked["changes"] = {**changes, **on_device}
            runs = reproduction.plan(table, scale, **asked)
            if plan:
                _show_plan(table.name, runs)
            else:
                check_clean(allow_dirty)
            _show_first_forecast(runs, scale, quiet)
            if not plan:
                folder = reproduction.reproduce(
                    table,
                    scale,
                    results=results,
                    progress=partial(printing.progress, quiet),
                    engine=engine,
                    board=partial(printing.board, quiet),
                    **asked,
                )
                _show_table(folder)


def prepare(words: list[str]) -> tuple[Command, list[str]]:
    """What the words say of the runs is taken out of them, if the first names a table."""
    given: Options = {}
    if words and words[0] in reproduction.names():
        known = reproduction.options_of(reproduction.load(words[0]))
        given, words = given_options(words, own_options(command), known)
    return bound(command, "given", given), words


Runs = Sequence[tuple[Any, Specification, bool]]


def _show_plan(table: str, runs: Runs) -> None:
    for cell, asked, finished in runs:
        state = "finished" if finished else "to be run"
        print(f"{' '.join(cell.place)}, seed {asked.seed}: {state}")
    print(f"{table}: {len(runs)} runs, {sum(finished for *_, finished in runs)} finished")


def _show_first_forecast(runs: Runs, scale: str, quiet: bool) -> None:
    """At the paper's scale, where it matters: forecast the first run that is not finished."""
    asked = next((one for _, one, finished in runs if not finished), None)
    if scale != "paper" or asked is None or asked.network.kind == "mlp":
        return
    about = f"{asked.method.name} on {asked.stream.name}"
    if not quiet:
        print(f"{about}: trying two steps to forecast memory and time.", file=sys.stderr)
    found = forecast(asked, asked.make_stream())
    if not quiet:
        print(f"{about}: {found}", file=sys.stderr)


def _show_table(folder: Path) -> None:
    for line in (folder / "table.md").read_text(encoding="utf-8").splitlines():
        print(printable(line))
    print()
    print(printable(f"written to {folder}"))
    page = printing.page_of(folder)
    if page is not None:
        print(printable(f"page: {page}"))
