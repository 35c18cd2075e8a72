"""A run: a stream learned task by task, measured, and left as a record; it can be resumed."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from ..detection.infer import Observation
from ..learners.protocol import AnyLearner
from ..parallel.lost import LostError
from ..parallel.processes import Processes, current
from ..storage import checkpoint
from ..storage.files import printable
from ..storage.lock import alone_in
from ..storage.states import Inputs
from ..streams import Stream, Task
from .batches import batches, outline, steps_of
from .environment import environment
from .folder import finished_record, folder_made, keep_only, last_checkpoint, newest
from .identity import NUMERICS
from .measure import look_inside, scores
from .plan import Part, Plan, Schedule, check_plan
from .progress import Progress, Quiet
from .record import Record
from .restore import restore_finished
from .same_run import ELSEWHERE, check_same
from .saving import Saver
from .state import ALONE, Position, held_in, is_state, state_of
from .stopping import Interrupted, Stop, Terminated, stoppable

__all__ = [
    "AnyLearner",
    "Interrupted",
    "Progress",
    "Quiet",
    "Terminated",
    "is_out_of_memory",
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
) -> Record:
    """Learn every task of the stream in turn, measure, and write the record.

    Args:
        stream: the tasks.
        learner: what learns them. When `run` returns it has learned them, be it now or before.
        out: directory of the run. It is resumed if it was begun, and returned at once if it is
            finished; if it is finished with fewer tasks, it goes on with the others.
        steps: batches of each task.
        epochs: instead of steps, how often to go through the samples of each task; the last batch
            of an epoch may be smaller.
        batch: samples in each.
        seed: of the order of the samples.
        evaluate: after each task measure "all" tasks so far; only at the "last"; or after every
            n-th. Its own is always measured.
        curves: also measure the task being learned every so many steps.
        part: "test", or "validation" to choose settings.
        isolated: accuracies of networks that learned one task each, for the accuracy deviation.
        isolated_macro_f1: their macro-F1.
        specification: what to write into the record; by default stream, method and budget.
        progress: who is told how it goes.
        save_every: seconds between checkpoints. By default 60, or more where they would cost more
            than 2 % of the time, and after every task where they cost less.
        keep: leave the last checkpoint beside the record when the run is finished.
        restore: False leaves the learner of a finished run as it is, if only the record is wanted.
        command: what began it, for the record.

    >>> from functools import partial
    >>> import gateon
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
    told = progress if progress is not None and processes.is_first else Quiet()
    if out is None:
        return _Run(stream, learner, record, plan, told, processes).go()
    folder = processes.first(lambda: folder_made(Path(out)))
    with ExitStack() as locked:
        processes.first(lambda: locked.enter_context(alone_in(folder)))
        finished = processes.first(lambda: finished_record(folder))
        if finished is None:
            return _Run(stream, learner, record, plan, told, processes, folder).go()
        _check_finished(folder, finished, record, plan.tasks)
        if len(finished.tasks) < plan.tasks:
            first = last_checkpoint(folder, len(finished.tasks))
            return _Run(stream, learner, record, plan, told, processes, folder, first).go()
        if restore:
            restore_finished(folder, finished, learner, Inputs(stream.shape, stream.classes))
        if isolated is not None and finished.isolated != isolated:
            finished.isolated, finished.isolated_macro_f1 = isolated, isolated_macro_f1
            processes.first(lambda: finished.save(folder / "record.json"))
        return finished


def _check_finished(folder: Path, found: Record, asked: Record, tasks: int) -> None:
    """Refuse a finished run that neither is the one asked for nor can be extended to it."""
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


class _Run:
    """Task by task: learn, measure, save. `first` is the end of the run that this one extends."""

    def __init__(
        self,
        stream: Stream,
        learner: AnyLearner,
        record: Record,
        plan: Plan,
        progress: Progress,
        processes: Processes,
        folder: Path | None = None,
        first: Path | None = None,
    ) -> None:
        self.stream, self.learner, self.record, self.plan = stream, learner, record, plan
        self.progress, self.processes, self.folder = progress, processes, folder
        self.at = Position()
        self.trained = 0.0  # seconds of training in the current task
        self.saver = Saver(folder, plan.save_every, processes, pinned=first)
        self.resumed: Path | None = None  # the checkpoint gone on from, until a step is made
        self.stop = Stop()

    def go(self) -> Record:
        self._resume()
        done = sum(self.plan.steps[: self.at.task]) + self.at.step
        self.progress.begin(self.record.name, self.plan.steps, done)
        try:
            with stoppable() as self.stop:
                while self.at.task < self.plan.tasks:
                    self._learn_task()
                    self._measure()
                    self.at.next_task()
                    self.trained = 0.0
                    if self.saver.is_due(after_task=True):
                        self._save()
                self._finish()
        except (
            checkpoint.WriteError,
            LostError,
        ):  # trying again would not help; what was written before stays
            raise
        except Exception as reason:
            self._end_with(reason)
            if self.stop and isinstance(reason, OSError):  # as from a terminal that was closed
                raise self.stop.reason from reason
            raise
        finally:
            self.progress.end()
        if self.stop:  # after the last step: the run is whole, but nothing further is wanted
            raise self.stop.reason
        return self.record

    # A task is learned.

    def _learn_task(self) -> None:
        task = self.stream[self.at.task]
        self._check_batch(task)
        if len(self.record.contexts) <= self.at.task:
            self._begin_task(task)
        self._learn_steps(task)
        self._end_task(task)

    def _begin_task(self, task: Task) -> None:
        known, record = self.at.identities, self.record
        if task.identity not in known:
            known.append(task.identity)
        record.identities.append(known.index(task.identity))
        # where contexts are inferred, until one is found
        record.contexts.append(record.identities[-1])
        record.tasks.append(task.name)
        record.curves.append([])
        named = self.stream.labels
        record.labels.append([] if named is None else list(named(self.at.task)))
        record.samples.append(len(task.train))

    def _learn_steps(self, task: Task) -> None:
        at, plan, train = self.at, self.plan, task.train
        steps, key = plan.steps[at.task], (plan.seed, at.task)
        context = None if self._infers else self.record.contexts[at.task]
        self.learner.expect(outline(train, self.stream.classes, steps, plan.epochs))
        begin, whole = time.monotonic(), plan.epochs is not None
        for rows in batches(train, plan.batch, steps, key, at.step, whole=whole):
            x = train.x[rows]
            if self.stream.augment is not None:
                x = self.stream.augment(x, (*key, at.step))
            seen = self.learner.observe(x, train.y[rows], context=context)
            self._note(seen)
            at.step, self.resumed = at.step + 1, None
            self.progress.step(at.task, at.step, seen.loss)
            if plan.curves and (at.step % plan.curves == 0 or at.step == steps):
                begin += self._add_to_curve()
            if self.saver.is_due(stop=bool(self.stop)):
                self.trained += time.monotonic() - begin
                self._save()
                begin = time.monotonic()
                self._stop_if_asked()
        self.trained += time.monotonic() - begin

    def _end_task(self, task: Task) -> None:
        """Tell the learner; what a method does then is part of its price."""
        begin, rows = time.monotonic(), torch.arange(len(task.train)).split(self.plan.batch)
        if not self.at.ended and not self._infers:  # else nobody is told where tasks end
            data = ((task.train.x[i], task.train.y[i]) for i in rows)
            self.learner.end_task(self.at.task, data)
        self.trained += time.monotonic() - begin
        self.at.ended = True

    @property
    def _infers(self) -> bool:
        return self.learner.contexts is not None

    def _note(self, seen: Observation) -> None:
        """What the detector found in a step: the context the task is in, and that of a switch."""
        if not self._infers:
            return
        task, step = self.at.task, self.at.step
        self.record.contexts[task] = seen.context
        if seen.switched and (task, step) != (0, 0):
            self.record.switches.append([task, step, seen.context])

    def _check_batch(self, task: Task) -> None:
        size, samples = self.plan.batch, len(task.train)
        if self.plan.epochs is None and size > samples:
            raise ValueError(
                f"A batch of {size} is larger than the {samples} training samples of task "
                f"{task.name!r}: choose a smaller one."
            )

    # What was learned is measured.

    def _measure(self) -> None:
        start, record, now = time.monotonic(), self.record, self.at.task
        accuracies: list[float | None] = []
        f1: list[float | None] = []
        for j in range(now + 1):
            # many tasks take long: all is measured anew on resuming
            if j < now and self.processes.any(bool(self.stop)):
                self._save()
                raise self.stop.reason
            accuracy, macro = self._score(j)
            accuracies.append(accuracy)
            f1.append(macro)
        density, availability = look_inside(self.learner.model, record.contexts[now])
        # all at once: a run that stops in here finds nothing half-measured
        record.accuracy.append(accuracies)
        record.macro_f1.append(f1)
        record.density.append(density)
        record.availability.append(availability)
        took = {"train": self.trained, "evaluate": time.monotonic() - start}
        record.seconds.append({name: round(seconds, 3) for name, seconds in took.items()})
        self.progress.task(now, record.tasks[-1], accuracies, self.trained)

    def _score(self, task: int) -> tuple[float | None, float | None]:
        """Accuracy and macro-F1 on a task, if they are measured now."""
        if self.learner.separate and task < self.at.task:  # its own network: it cannot have changed
            return self.record.accuracy[task][task], self.record.macro_f1[task][task]
        if task < self.at.task and not self.plan.measures_all(self.at.task):
            return None, None
        return self._scores(task)

    def _add_to_curve(self) -> float:
        """Measure the task being learned; how long that took."""
        start = time.monotonic()
        right, _ = self._scores(self.at.task)
        self.record.curves[self.at.task].append([self.at.step, right])
        return time.monotonic() - start

    def _scores(self, task: int) -> tuple[float, float]:
        part: Part = "test" if self.record.part == "test" else "validation"
        return scores(self.learner, self.stream, task, self.record.contexts[task], part)

    # What was learned is saved.

    def _save(self) -> None:
        self.stop.saving = True
        if self.folder is None:
            self.saver.rest(0.0)
        else:
            self.processes.check_alike(self.learner.model)
            self.saver.save(self._state, self.at.task, self.at.step)
        self.stop.saving = False

    def _state(self) -> dict[str, Any]:
        state = state_of(self.record, self.at, self.trained, self.learner, self.plan.tasks)
        return state | {"processes": self.processes.count}

    def _stop_if_asked(self) -> None:
        """All processes stop where any of them was asked to."""
        if self.processes.any(bool(self.stop)):
            raise self.stop.reason

    def _resume(self) -> None:
        found = None if self.folder is None else newest(self.folder)
        if found is None:
            return
        path, state = found
        if not is_state(state):
            raise ValueError(f"{path} is no checkpoint of this run: delete it to start anew.")
        numerics = state.get("numerics", 1)
        same = check_same(state["specification"], state["data"], numerics, self.record, path)
        self._check_processes(path, state.get("processes", 1))
        if not same:
            self._check_length(state)
        inputs = Inputs(self.stream.shape, self.stream.classes)
        try:
            held = held_in(
                state,
                self.plan,
                inferred=self._infers,
                separate=self.learner.separate,
                same_length=same,
            )
            self.learner.load_state_dict(state["learner"], inputs)
        except (ValueError, OverflowError) as reason:
            told = printable(reason)
            if not same:
                raise ValueError(
                    f"{self.folder} cannot go on with {self.plan.tasks} tasks ({told}): give the "
                    f"learner the arguments it had there, or {ELSEWHERE}."
                ) from reason
            raise ValueError(
                f"{path} is no checkpoint of this run ({told}): delete it to start anew."
            ) from reason
        self.at, self.trained = held.position, held.trained
        self.record.seconds = held.seconds
        for name, value in held.found.items():
            if name not in ALONE or getattr(self.record, name) is None:
                setattr(self.record, name, value)
        self.saver.last = self.resumed = path

    def _check_processes(self, path: Path, began: Any) -> None:
        now = self.processes.count
        if began != now:
            raise ValueError(
                f"{path.parent} holds a run of {began} {'process' if began == 1 else 'processes'}, "
                f"and {now} would round its sums otherwise: go on with {began} (torchrun "
                f"--nproc-per-node {began}), or {ELSEWHERE}."
            )

    def _check_length(self, state: dict[str, Any]) -> None:
        """Refuse to end a run with fewer tasks than it has done."""
        done = state["position"].get("task")
        if isinstance(done, int) and done >= self.plan.tasks:
            raise ValueError(
                f"{self.folder} holds this run with more tasks, {done} of them done: "
                f"ask for more than {done}, or {ELSEWHERE}."
            )

    def _finish(self) -> None:
        several = {"processes": self.processes.count} if self.processes.count > 1 else {}
        self.record.environment = environment() | several
        if self.folder is None:
            return
        if self.plan.keep:
            self._save()
        self.processes.first(self._write_record)

    def _write_record(self) -> None:
        assert self.folder is not None
        if self.plan.keep:
            keep_only(self.folder, [self.saver.last] if self.saver.last else [])
        self.record.save(self.folder / "record.json")
        if not self.plan.keep:
            keep_only(self.folder, [])

    def _end_with(self, reason: Exception) -> None:
        """Save what was learned, if the error came between steps, or raise one that says more."""
        at = self.at
        if is_out_of_memory(reason):  # in the middle of a step, which must not be saved
            raise MemoryError(
                f"Memory ran out after step {at.step} of task {at.task + 1}; checkpoints "
                "written before are whole. Free memory and give the same command to go on, or "
                "begin a run with a smaller batch or network elsewhere."
            ) from reason
        if self.resumed is not None and isinstance(
            reason, ArithmeticError | RuntimeError | LookupError | TypeError | AttributeError
        ):
            # Nothing was learned since: what fits in kind may still hold numbers that lead nowhere.
            kind = FloatingPointError if isinstance(reason, FloatingPointError) else ValueError
            told = printable(reason).rstrip(".")
            raise kind(
                f"{self.resumed} cannot be gone on with ({told}): delete it to start anew."
            ) from reason
        if self.processes.count > 1:  # the others may not have come as far
            return
        between = isinstance(reason, ValueError | OSError | FloatingPointError)
        if between and (at.task or at.step):
            self._save()


def is_out_of_memory(reason: BaseException) -> bool:
    """Whether an error says that memory ran out; torch has no class for it on every device."""
    known = isinstance(reason, MemoryError | torch.OutOfMemoryError)
    return known or "allocate memory" in str(reason)


def _described(
    stream: Stream, learner: AnyLearner, plan: Plan, steps: int, part: Part
) -> dict[str, Any]:
    """What identifies a run that was begun from Python."""
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
