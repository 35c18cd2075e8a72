"""A run: a stream learned task by task, measured, and left as a record; it can be resumed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..learners.protocol import AnyLearner
from ..parallel.processes import Processes, current
from ..storage.lock import alone_in
from ..storage.states import Inputs
from ..streams import Stream
from ..tracking.choosing import trackers_for
from ..tracking.tracker import Tracker
from .batches import steps_of
from .folder import finished_record, folder_made, last_checkpoint
from .identity import NUMERICS
from .loop import Loop
from .plan import Part, Plan, Schedule, check_plan
from .progress import Progress, Quiet, Several
from .record import Record
from .restore import restore_finished
from .same_run import ELSEWHERE, check_same
from .stopping import Interrupted, Terminated
from .traced import check_traced
from .tracked import Tracked, held_trackers

__all__ = [
    "AnyLearner",
    "Interrupted",
    "Progress",
    "Quiet",
    "Terminated",
    "run",
]


def run(
    stream: Stream,
    learner: AnyLearner,
    out: str | Path | None = None,
    *,
    steps: int = 250,
    epochs: int | None = None,
    batch: int = 500,
    seed: int = 0,
    evaluate: Schedule | int = "all",
    curves: int | None = None,
    part: Part = "test",
    isolated: list[float] | None = None,
    isolated_macro_f1: list[float] | None = None,
    specification: dict[str, Any] | None = None,
    progress: Progress | None = None,
    save_every: float | None = None,
    keep: bool = True,
    restore: bool = True,
    command: str | None = None,
    trace: str | Sequence[str] | None = None,
    trace_every: int | None = None,
    trackers: Sequence[str | Tracker] = (),
) -> Record:
    """Learn every task of the stream in turn, measure, and write the record.

    Args:
        stream: the tasks.
        learner: what learns them. When `run` returns it has learned them, now or in an earlier
            call.
        out: directory of the run. An unfinished run is resumed, a finished one is returned at once,
            and one finished with fewer tasks continues with the rest.
        steps: batches of each task.
        epochs: instead of steps, how often to go through the samples of each task; the last batch
            of an epoch may be smaller.
        batch: samples per batch.
        seed: of the order of the samples.
        evaluate: after each task measure "all" tasks so far; only at the "last"; or after every
            n-th. The task just learned is always measured.
        curves: the number of steps after which the current task is measured too.
        part: "test", or "validation" to choose settings.
        isolated: accuracies of networks that learned one task each, for the accuracy deviation.
        isolated_macro_f1: their macro-F1.
        specification: what to write into the record; by default stream, method and budget.
        progress: receives reports, such as `gateon.progress()`.
        save_every: seconds between checkpoints. By default 60, or more where they would cost more
            than 2 % of the time, and after every task where they cost less.
        keep: leave the last checkpoint beside the record when the run is finished.
        restore: False leaves the learner of a finished run as it is, if only the record is wanted.
        command: the command that started it, for the record.
        trace: patterns of the names of sites, such as "*", whose units are watched: `record.trace`
            then has what they did over time; see `gateon.tracing.trace.Trace`.
        trace_every: steps between its samples, 20 by default; more where there would be too many.
        trackers: also tell these what is learned and measured: tensorboard, mlflow, wandb or
            trackio by name, or an object with the members of `gateon.tracking.tracker.Tracker`. A
            run that goes on is told to those that followed it before.

    >>> from functools import partial
    >>> import torch, gateon
    >>> from gateon.models import mlp
    >>> stream = gateon.streams.split_mnist(data="mnist-5k")
    >>> adam = partial(torch.optim.Adam, lr=5e-3)
    >>> model, method = mlp(784, (50,), 2), gateon.GateON(density=0.5)
    >>> learner = gateon.Learner(model, optimizer=adam, method=method)
    >>> record = run(stream, learner, steps=20, batch=100)
    >>> record.summary["continual_accuracy"] > 0.8
    True
    """
    check_plan(stream, steps, epochs, batch, evaluate, curves, isolated)
    per_task = steps_of(stream, batch, steps, epochs)
    plan = Plan(per_task, epochs, batch, seed, evaluate, curves, save_every, keep)
    record = Record(
        name=f"{stream.name} {learner.name}",
        specification=specification or _described(stream, learner, plan, steps, part),
        data=stream.source,
        isolated=isolated,
        isolated_macro_f1=isolated_macro_f1,
        shape=list(stream.shape),
        classes=stream.classes,
        part=part,
        command=command,
        numerics=NUMERICS,
    )
    processes = current()
    if processes != getattr(learner, "processes", Processes()):
        raise ValueError(
            f"{learner.name} cannot be trained by several processes: run it in one, or choose "
            "another method; a gateon.Learner takes processes=."
        )
    sites = [trace] if isinstance(trace, str) else trace
    if sites is None and trace_every is not None:
        raise ValueError("The steps between samples of a trace do nothing without a trace.")
    shown = progress if progress is not None and processes.is_first else Quiet()
    followers = trackers_for(trackers)

    def tracked(followed: Record, folder: Path | None = None) -> Tracked:
        held = [] if folder is None else held_trackers(folder, followers)
        inferred = learner.contexts is not None
        return Tracked([*followers, *held], followed, folder, inferred=inferred)

    def loop(folder: Path | None = None, first: Path | None = None) -> Loop:
        told = Several(shown, tracked(record, folder)) if processes.is_first else shown
        return Loop(
            stream,
            learner,
            record,
            plan,
            told,
            processes,
            folder,
            first,
            trace=sites,
            trace_every=trace_every,
        )

    if out is None:
        return loop().go()
    folder = processes.first(lambda: folder_made(Path(out)))
    with ExitStack() as locked:
        processes.first(lambda: locked.enter_context(alone_in(folder)))
        finished = processes.first(lambda: finished_record(folder))
        if finished is None:
            return loop(folder).go()
        _check_finished(folder, finished, record, plan.tasks)
        if len(finished.tasks) < plan.tasks:
            return loop(folder, last_checkpoint(folder, len(finished.tasks))).go()
        check_traced(folder, sites)
        processes.first(lambda: tracked(finished, folder).catch_up(per_task))
        if restore:
            restore_finished(folder, finished, learner, Inputs(stream.shape, stream.classes))
        if isolated is not None and finished.isolated != isolated:
            finished.isolated, finished.isolated_macro_f1 = isolated, isolated_macro_f1
            processes.first(lambda: finished.save(folder / "record.json"))
        return finished


def _check_finished(folder: Path, found: Record, asked: Record, tasks: int) -> None:
    """Refuse a finished run that is not the requested one and cannot be extended to it."""
    path, done = folder / "record.json", len(found.tasks)
    check_same(found.specification, found.data, found.numerics, asked, path)
    if tasks < done:
        raise ValueError(
            f"{folder} holds this run with {done} tasks done: ask for {done} or more, or {ELSEWHERE}."
        )
    if tasks > done and last_checkpoint(folder, done) is None:
        raise ValueError(
            f"{folder} holds this run with {done} tasks done and without its last checkpoint, so "
            f"that it cannot go on with more: {ELSEWHERE}."
        )


def _described(
    stream: Stream, learner: AnyLearner, plan: Plan, steps: int, part: Part
) -> dict[str, Any]:
    """What identifies a run started from Python."""
    return {
        "stream": stream.settings,
        **learner.description,
        **({"steps": steps} if plan.epochs is None else {"epochs": plan.epochs}),
        "batch": plan.batch,
        "seed": plan.seed,
        "evaluate": plan.evaluate,
        "curves": plan.curves,
        "part": part,
    }
