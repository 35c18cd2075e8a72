"""gateon run."""

from __future__ import annotations

from pathlib import Path

from ..parallel.processes import together
from ..runs.specified import run_specification
from ..tracking.choosing import trackers_for
from . import printing
from .parse import JSON, Command, Names, Sites, names_in
from .specified import Asked, short_name, specified

__all__ = ["command", "prepare"]


def command(
    asked: Asked,
    out: Path | None = None,
    isolated: bool = False,
    save_spec: Path | None = None,
    trace: Sites = None,
    trace_every: int | None = None,
    track: Names = "",
    as_json: JSON = False,
    quiet: bool = False,
) -> None:
    """Train on a stream of tasks, one after another, and measure what is retained.

    STREAM is permuted-mnist, rotated-mnist, shuffled-mnist, split-mnist, split-cifar10,
    split-cifar100, asc, dsc, news20, own:PATH for your own data, text:PATH for your own texts, or
    a .toml file with options, which those given here override. The options below are those of the
    stream and method that are named: gateon run asc --method ewc --help shows others.

    Processes that torchrun starts train one network, each with a share of every batch.

    Args:
        asked: what to run.
        out: directory of the run; runs/STREAM-METHOD-SEED by default. The same command continues
            an unfinished run, and one with more tasks extends a finished one.
        isolated: also train a separate network on each task, once, for the accuracy deviation.
        save_spec: write the options to this .toml file and exit.
        trace: also keep what single units do over time, in trace.npz: gain, activity, relevance and
            availability at sites with gates, or at those that match patterns such as first,group1*.
        trace_every: steps between samples of the trace, 20 by default; more in a long run.
        track: also tell these trackers what is learned and measured, separated by commas:
            tensorboard, mlflow, wandb, trackio.
        as_json: print only the record's summary, as JSON.
        quiet: show no progress.
    """
    options = asked.specification()
    if save_spec is not None:
        options.save(save_spec)
        return
    trackers = names_in(track)
    trackers_for(trackers)  # one that is missing is told before anything is read or trained
    method = options.method.name
    folder = out or Path("runs") / f"{short_name(options.stream.name)}-{method}-{options.seed}"
    with together(options.training.device) as processes:
        if processes.is_first:
            printing.about_slow_bf16(options)
            printing.forecast_of_new(options, folder, quiet)
        progress = printing.progress(quiet or not processes.is_first)
        if processes.is_first:
            progress = printing.with_page(progress, folder)
        record = run_specification(
            options,
            folder,
            isolated=isolated,
            progress=progress,
            trace=trace,
            trace_every=trace_every,
            trackers=trackers,
        )
        if processes.is_first:
            printing.record(record, method, folder, as_json, quiet)


def prepare(words: list[str]) -> tuple[Command, list[str]]:
    """Its options are those of the stream and method among the words."""
    return specified(command, words)
