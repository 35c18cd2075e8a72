"""gateon compare."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rich.console import Console

from ..options.kinds import checked
from ..pages.page import write_page
from ..report import terminal
from ..report.figures import compare_figure
from ..report.table import summarise, write_comparison
from ..runs.compare import Seeds
from ..tracking.choosing import trackers_for
from ..workers.comparison import compare
from ..workers.engine import Engine
from . import printing
from .home import home
from .parse import JSON, Command, Names, Out, Sites, names_in
from .specified import Asked, short_name, specified

__all__ = ["command", "prepare"]

METHODS = "n-gateon,p-gateon,finetune"


def command(
    asked: Asked,
    methods: str = METHODS,
    seeds: int = 1,
    out: Out = None,
    isolated: bool = False,
    workers: int | None = None,
    on: str | None = None,
    gpus: float = 0.0,
    trace: Sites = None,
    trace_every: int | None = None,
    track: Names = "",
    as_json: JSON = False,
    quiet: bool = False,
) -> None:
    """Run several methods with several seeds, and compare them.

    Options of a method apply to the methods that have them.

    Args:
        asked: what to run.
        methods: the methods, separated by commas.
        seeds: the number of seeds, counting up from --seed.
        out: directory of the runs; runs/compare-STREAM by default. With --on ray also a URL, such
            as s3://bucket/runs. The same command continues unfinished runs.
        isolated: also train a separate network on each task, once per seed, for the accuracy
            deviation.
        workers: how many runs at once, each in a process with one thread and a core of its own, or
            as many threads as --threads says; by default one after another in this process.
        on: ray, ray://HOST:PORT or ray:HOST:PORT: runs are tasks of a Ray cluster, and go on
            elsewhere if a node is lost. --out must be a directory that all nodes share, or a URL.
        gpus: of each run on Ray; a fraction shares one.
        trace: also keep what single units do over time, in every run whose method has gates; see
            gateon run.
        trace_every: steps between samples of the traces.
        track: also tell these trackers of every run, separated by commas; see gateon run.
        as_json: print only the table, as JSON.
        quiet: show no progress.
    """
    checked("seeds", seeds, Seeds)
    trackers = names_in(track)
    trackers_for(trackers)  # one that is missing is told before anything is trained
    own = {
        name: value
        for name, value in asked.given.items()
        if name.startswith("method.") and name != "method.preset"
    }
    common = {name: value for name, value in asked.given.items() if name not in own}
    options = asked.start.with_options(common)
    printing.about_slow_bf16(options)
    place = out or Path("runs") / f"compare-{short_name(options.stream.name)}"
    with home(place, on) as at:
        folder = at.folder
        if at.store is None:
            printing.forecast_of_new(options, folder, quiet)
        records = compare(
            options,
            names_in(methods),
            seeds,
            folder,
            options=own,
            isolated=isolated,
            trace=trace,
            trace_every=trace_every,
            trackers=trackers,
            progress=partial(printing.progress, quiet),
            engine=Engine(workers, on, gpus, options.training.threads or 1, at.store),
            board=partial(printing.board, quiet),
        )
        write_comparison(records, options.to_dict(), folder)
        first = {method: runs[0] for method, runs in records.items()}
        printing.about_data(next(iter(first.values())), quiet)
        figures = compare_figure(records, folder / "compare")
        page = write_page([folder], folder / "report.html")
        if as_json:
            print((folder / "compare.json").read_text(), end="")
            return
        console = Console()
        for record in first.values():
            console.print(terminal.matrix(record, console.width), end="\n\n")
        printing.legend(console)
        console.print(terminal.table(summarise(records), seeds, console.width))
        print(f"percent{f', mean ± standard deviation of {seeds} seeds' if seeds > 1 else ''}")
        print(f"table: {at.shown(folder / 'compare.md')}, figure: {at.shown(figures[0])}")
        print(f"page: {at.shown(page)}")


def prepare(words: list[str]) -> tuple[Command, list[str]]:
    """Its options are those of the stream and methods among the words."""
    given = next((n for n, word in enumerate(words[:-1]) if word == "--methods"), None)
    equals = next((word[10:] for word in words if word.startswith("--methods=")), METHODS)
    names = names_in(equals if given is None else words[given + 1])
    if not names:
        raise ValueError("Name at least one method to compare.")
    return specified(command, words, names)
