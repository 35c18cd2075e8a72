"""A run: a stream, learned task by task, measured after every task, and left as a record. The same call resumes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from . import checkpoint, metrics
from .folder import alone_in, check_same, finished_run, folder_made
from .gates import gates_of
from .isolated import Isolated
from .learner import Learner
from .methods.gateon import GateON
from .record import Record, environment
from .streams import Split, Stream

__all__ = ["Interrupted", "Progress", "Quiet", "run"]

Schedule = Literal["all", "last"]
CHEAP = 0.2  # seconds


class Interrupted(KeyboardInterrupt):
    """The user stopped a run; it was saved, and the same call goes on."""


class Progress(Protocol):
    """Who is told how a run goes."""

    def begin(self, name: str, tasks: int, steps: int, at: int) -> None:
        """A run of so many tasks and steps each begins, or goes on at a step."""

    def step(self, task: int, step: int, loss: float) -> None:
        """One batch was learned."""

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """A task was learned and the tasks so far measured."""

    def end(self) -> None:
        """The run is over, or was stopped."""


class Quiet:
    """Tells nobody."""

    def begin(self, name: str, tasks: int, steps: int, at: int) -> None:
        """Nothing."""

    def step(self, task: int, step: int, loss: float) -> None:
        """Nothing."""

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


def run(
    stream: Stream,
    learner: Learner | Isolated,
    out: str | Path | None = None,
    *,
    steps: int = 250,
    batch: int = 500,
    seed: int = 0,
    evaluate: Schedule | int = "all",
    curves: int | None = None,
    part: Literal["test", "validation"] = "test",
    isolated: list[float] | None = None,
    specification: dict[str, Any] | None = None,
    progress: Progress | None = None,
    save_every: float = 60.0,
) -> Record:
    """Learn every task of the stream in turn, measure, and write the record.

    Args:
        stream: the tasks.
        learner: what learns them.
        out: directory of the run. It is resumed if it was begun, and returned at once if it is finished.
        steps: batches of each task.
        batch: samples in each.
        seed: of the order of the samples.
        evaluate: after each task measure "all" tasks so far; only at the "last"; or after every n-th. Its own is always measured.
        curves: also measure the task being learned every so many steps.
        part: "test", or "validation" to choose settings.
        isolated: accuracies of networks that learned one task each, for the accuracy deviation.
        specification: what to write into the record; by default stream, method and budget.
        progress: who is told how it goes.
        save_every: seconds between checkpoints; where one costs little it is written after every task, too.

    >>> from functools import partial
    >>> import gateon
    >>> from gateon.models import mlp
    >>> stream = gateon.streams.split_mnist(data="mnist-5k")
    >>> learner = Learner(mlp(784, (50,), 2), optimizer=partial(torch.optim.Adam, lr=5e-3), method=gateon.GateON(density=0.5))
    >>> record = run(stream, learner, steps=20, batch=100)
    >>> record.summary["continual_accuracy"] > 0.8
    True
    """
    _check(stream, steps, batch, evaluate, curves, isolated)
    told = progress or Quiet()
    asked = specification or _described(stream, learner, steps, batch, seed, evaluate, curves, part)
    fresh = Record(f"{stream.name} {learner.method.name}", asked, stream.source, isolated=isolated, part=part)
    if out is None:
        return _Run(stream, learner, fresh, None, steps, batch, seed, evaluate, curves, told, save_every).go()
    folder = folder_made(Path(out))
    with alone_in(folder):
        finished = finished_run(folder, fresh)
        if finished is not None:
            if isolated is not None and finished.isolated != isolated:
                finished.isolated = isolated
                finished.save(folder / "record.json")
            return finished
        return _Run(stream, learner, fresh, folder, steps, batch, seed, evaluate, curves, told, save_every).go()


class _Run:
    def __init__(
        self,
        stream: Stream,
        learner: Learner | Isolated,
        record: Record,
        folder: Path | None,
        steps: int,
        batch: int,
        seed: int,
        evaluate: Schedule | int,
        curves: int | None,
        progress: Progress,
        save_every: float,
    ) -> None:
        self.stream, self.learner, self.record, self.folder = stream, learner, record, folder
        self.steps, self.batch, self.seed, self.evaluate, self.curves = steps, batch, seed, evaluate, curves
        self.progress, self.save_every = progress, save_every
        self.task = self.step = 0
        self.trained = 0.0  # seconds of the current task
        self.saved, self.saving = time.monotonic(), 0.0  # when it was last saved, and how long that took
        self.identities: list[int] = []  # of the tasks so far, to recognise one that returns

    def go(self) -> Record:
        self._resume()
        self.progress.begin(self.record.name, len(self.stream), self.steps, self.task * self.steps + self.step)
        try:
            with _interruptible() as stopped:
                while self.task < len(self.stream):
                    self._learn(stopped)
                    self._measure()
                    self.task, self.step, self.trained = self.task + 1, 0, 0.0
                    if self.saving < CHEAP or time.monotonic() - self.saved > self.save_every:
                        self._save()
                self._finish()
        except (ValueError, FloatingPointError):  # in the data or the loss, between two steps: what was learned before stays
            if self.task or self.step:
                self._save()
            raise
        finally:
            self.progress.end()
        if stopped.is_set():  # after the last step: the run is whole, but whoever stopped it wants nothing further
            raise Interrupted
        return self.record

    def _finish(self) -> None:
        self.record.environment = environment()
        if self.folder is not None:
            self.record.save(self.folder / "record.json")
            (self.folder / "checkpoint.safetensors").unlink(missing_ok=True)

    def _learn(self, stopped: threading.Event) -> None:
        task = self.stream[self.task]
        if len(self.record.contexts) <= self.task:
            if task.identity not in self.identities:
                self.identities.append(task.identity)
            self.record.contexts.append(self.identities.index(task.identity))
            self.record.tasks.append(task.name)
            self.record.curves.append([])
        if self.batch > len(task.train):
            samples = f"the {len(task.train)} training samples of task {task.name!r}"
            raise ValueError(f"A batch of {self.batch} is larger than {samples}: choose a smaller one.")
        context = self.record.contexts[self.task]
        begin = time.monotonic()
        for rows in _batches(task.train, self.batch, self.steps, (self.seed, self.task), self.step):
            seen = self.learner.observe(task.train.x[rows], task.train.y[rows], context=context)
            self.step += 1
            self.progress.step(self.task, self.step, seen.loss)
            if self.curves and (self.step % self.curves == 0 or self.step == self.steps):
                begin += self._add_to_curve(context)
            now = time.monotonic()
            if stopped.is_set() or now - self.saved > self.save_every:
                self.trained += now - begin
                self._save()
                begin = self.saved
                if stopped.is_set():
                    raise Interrupted
        self.trained += time.monotonic() - begin
        self.learner.end_task(
            self.task, ((task.train.x[i], task.train.y[i]) for i in torch.arange(len(task.train)).split(self.batch))
        )

    def _add_to_curve(self, context: int) -> float:
        """Measure the task being learned; how long that took."""
        start = time.monotonic()
        right = self._scores(self.task, context)[0]
        self.record.curves[self.task].append([self.step, right])
        return time.monotonic() - start

    def _measure(self) -> None:
        start = time.monotonic()
        record, last = self.record, self.task == len(self.stream) - 1
        everything = last or self.evaluate == "all" or (isinstance(self.evaluate, int) and (self.task + 1) % self.evaluate == 0)
        accuracies: list[float | None] = []
        f1: list[float | None] = []
        for j in range(self.task + 1):
            accuracy: float | None = None
            macro: float | None = None
            if self.learner.separate and j < self.task:  # its own network: it cannot have changed
                accuracy, macro = record.accuracy[j][j], record.macro_f1[j][j]
            elif everything or j == self.task:
                accuracy, macro = self._scores(j, record.contexts[j])
            accuracies.append(accuracy)
            f1.append(macro)
        record.accuracy.append(accuracies)
        record.macro_f1.append(f1)
        self._look_inside(record.contexts[self.task])
        record.seconds.append({"train": round(self.trained, 3), "evaluate": round(time.monotonic() - start, 3)})
        self.progress.task(self.task, record.tasks[-1], accuracies, self.trained)

    def _scores(self, task: int, context: int) -> tuple[float, float]:
        """Accuracy and macro-F1 on a task."""
        split = self.stream.split(task, "test" if self.record.part == "test" else "validation")
        if not len(split):
            raise ValueError(f"Task {task + 1} of {self.stream.name} has no {self.record.part} data to measure on.")
        rows = torch.arange(len(split)).split(2000)
        predicted = torch.cat([self.learner.predict(split.x[i], context=context).argmax(1) for i in rows])
        accuracy = (predicted == split.y).double().mean().item()
        return accuracy, metrics.macro_f1(split.y, predicted, max(self.stream.classes, int(predicted.max()) + 1))

    def _look_inside(self, context: int) -> None:
        gates = gates_of(self.learner.model)
        opened = {} if gates is None else {site: (gain > 0).float().mean().item() for site, gain in gates.gain(context).items()}
        self.record.density.append(opened)
        method = self.learner.method
        handle = method.handle if isinstance(method, GateON) else None
        found = {} if handle is None else handle.saturation()
        self.record.availability.append({site: {"frozen": frozen, "room": room} for site, (frozen, room) in found.items()})

    def _save(self) -> None:
        start = time.monotonic()
        if self.folder is not None:
            kept = ("tasks", "contexts", "accuracy", "macro_f1", "seconds", "density", "availability", "curves")
            position = {"task": self.task, "step": self.step, "trained": self.trained, "identities": self.identities}
            state = {
                "specification": self.record.specification,
                "data": self.record.data,
                "position": position,
                "found": {name: getattr(self.record, name) for name in kept},
                "learner": self.learner.state_dict(),
            }
            checkpoint.save(state, self.folder / "checkpoint.safetensors")
        self.saved, self.saving = time.monotonic(), time.monotonic() - start

    def _resume(self) -> None:
        path = None if self.folder is None else self.folder / "checkpoint.safetensors"
        if path is None or not path.exists():
            return
        state = checkpoint.load(path)
        try:
            check_same(state["specification"], state["data"], self.record, path)
            position = state["position"]
            self.learner.load_state_dict(state["learner"])
            self.task, self.step, self.trained = position["task"], position["step"], position["trained"]
            self.identities = position["identities"]
            for name, value in state["found"].items():
                setattr(self.record, name, value)
        except (KeyError, TypeError, AttributeError, RuntimeError) as reason:
            raise ValueError(f"{path} is no checkpoint of this run: delete it to start anew.") from reason


def _batches(split: Split, size: int, steps: int, seed: tuple[int, ...], start: int) -> Iterator[Tensor]:
    """Row indices of each batch from step `start` on: epochs without replacement, or time passing once where order matters.

    Step s depends on the seed and s alone, so that a run can be resumed at any step.
    """
    rows = len(split)
    if split.ordered:
        for step in range(start, steps):
            yield torch.arange(step * size, (step + 1) * size) * rows // (steps * size)
        return
    a_epoch = rows // size
    order: tuple[int, Tensor] | None = None
    for step in range(start, steps):
        epoch, place = divmod(step, a_epoch)
        if order is None or order[0] != epoch:
            order = epoch, torch.from_numpy(np.random.default_rng((*seed, epoch)).permutation(rows))
        yield order[1][place * size : (place + 1) * size]


def _check(
    stream: Stream, steps: int, batch: int, evaluate: Schedule | int, curves: int | None, isolated: list[float] | None
) -> None:
    for name, value in (("steps", steps), ("batch", batch), ("curves", 1 if curves is None else curves)):
        if value < 1:
            raise ValueError(f"{name} is a whole number of at least 1, not {value}.")
    if evaluate not in ("all", "last") and not (isinstance(evaluate, int) and evaluate >= 1):
        raise ValueError(f'evaluate is "all", "last" or a number of tasks of at least 1, not {evaluate!r}.')
    if len(stream) < 1:
        raise ValueError("The stream has no task.")
    if isolated is not None and len(isolated) != len(stream):
        raise ValueError(f"isolated has {len(isolated)} accuracies for {len(stream)} tasks: give one for each task.")


def _described(stream: Stream, learner: Learner | Isolated, steps: int, batch: int, seed: int, *rest: Any) -> dict[str, Any]:
    evaluate, curves, part = rest
    return {
        "stream": stream.settings,
        **learner.description,
        "steps": steps,
        "batch": batch,
        "seed": seed,
        "evaluate": evaluate,
        "curves": curves,
        "part": part,
    }


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Ctrl-C sets the event instead of raising in the middle of a step; a second one raises at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def on_signal(number: int, frame: Any) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    previous = signal.signal(signal.SIGINT, on_signal)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, previous)
