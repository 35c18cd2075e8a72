"""gateon run."""

from __future__ import annotations

from pathlib import Path

from ..runs.compare import run_specification
from . import show
from .parse import JSON, Command
from .specified import Options, short_name, with_file

__all__ = ["command", "prepare"]


def command(
    options: Options,
    out: Path | None = None,
    isolated: bool = False,
    save_spec: Path | None = None,
    as_json: JSON = False,
    quiet: bool = False,
) -> None:
    """Train on a stream of tasks, one after another, and measure what is retained.

    STREAM is permuted-mnist, rotated-mnist, shuffled-mnist, split-mnist, split-cifar10,
    split-cifar100, asc, dsc, news20, own:PATH for your own data, text:PATH for your own texts, or
    a .toml file with all options. Options given here override those of the file. Streams of texts
    start from the usual settings for fine-tuning a language model.

    Args:
        options: what to run.
        out: directory of the run; runs/STREAM-METHOD-SEED by default. The same command continues
            an unfinished run.
        isolated: also train a separate network on each task, once, for the accuracy deviation.
        save_spec: write the options to this .toml file and exit.
        as_json: print only the record's summary, as JSON.
        quiet: show no progress.
    """
    if save_spec is not None:
        options.save(save_spec)
        return
    show.about_slow_bf16(options)
    folder = out or Path("runs") / f"{short_name(options.stream)}-{options.method}-{options.seed}"
    show.forecast_of_new(options, folder, quiet)
    record = run_specification(options, folder, isolated=isolated, progress=show.progress(quiet))
    show.record(record, options.method, folder, as_json, quiet)


def prepare(words: list[str]) -> tuple[Command, list[str]]:
    """A .toml file may stand in place of the stream."""
    return with_file(command, words)
