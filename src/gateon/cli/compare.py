"""gateon compare."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from ..report import terminal
from ..report.figures import compare_figure
from ..report.table import summarise, write_comparison
from ..runs.compare import compare
from ..runs.specification import check_seeds
from ..storage.files import printable
from . import show
from .parse import JSON, Command
from .specified import Options, short_name, with_file

__all__ = ["command", "prepare"]


def command(
    options: Options,
    methods: str = "n-gateon,p-gateon,finetune",
    seeds: int = 1,
    out: Path | None = None,
    isolated: bool = False,
    as_json: JSON = False,
    quiet: bool = False,
) -> None:
    """Run several methods with several seeds, and compare them.

    Args:
        options: what to run; --method is ignored.
        methods: the methods, separated by commas.
        seeds: the number of seeds, counting up from --seed.
        out: directory of the runs; runs/compare-STREAM by default. The same command continues
            unfinished runs.
        isolated: also train a separate network on each task, once per seed, for the accuracy
            deviation.
        as_json: print only the table, as JSON.
        quiet: show no progress.
    """
    check_seeds(seeds)
    show.about_slow_bf16(options)
    folder = out or Path("runs") / f"compare-{short_name(options.stream)}"
    names = [name.strip() for name in methods.split(",") if name.strip()]
    first_asked = replace(options, method=names[0]) if names else options  # type: ignore[arg-type]
    show.forecast_of_new(first_asked, folder, quiet)
    records = compare(
        options, names, seeds, folder, isolated=isolated, progress=partial(show.progress, quiet)
    )
    write_comparison(records, options.to_dict(), folder)
    first = {method: runs[0] for method, runs in records.items()}
    show.about_data(next(iter(first.values())), quiet)
    figures = compare_figure(first, folder / "compare")
    if as_json:
        print((folder / "compare.json").read_text(), end="")
        return
    console = Console()
    for record in first.values():
        console.print(terminal.matrix(record, console.width), end="\n\n")
    console.print(terminal.table(summarise(records), seeds))
    print(f"percent{f', mean ± standard deviation of {seeds} seeds' if seeds > 1 else ''}")
    print(printable(f"table: {folder / 'compare.md'}, figure: {figures[0]}"))


def prepare(words: list[str]) -> tuple[Command, list[str]]:
    """A .toml file may stand in place of the stream."""
    return with_file(command, words)
