"""A run: a stream learned task by task, measured, and left as a record; it can be resumed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

import torch

from ..availability.obstruct import obstruction_of
from ..detection.infer import Observation
from ..gating.gates import gates_of
from ..learners.protocol import AnyLearner
from ..storage import checkpoint
from ..storage.files import printable
from ..storage.lock import alone_in
from ..storage.states import ANYTHING, FLAG, Inputs, Whole, check, check_fits, values_like
from ..streams import Stream
from . import metrics
from .batches import batches, outline, steps_of
from .folder import check_same, checkpoint_path, finished_run, folder_made, keep_only, newest
from .identity import NUMERICS
from .progress import Progress, Quiet
from .record import Record, are_times, environment, fits, packed, unpacked
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

Schedule = Literal["all", "last"]
SAVE_EVERY = 60.0  # seconds between checkpoints
NUMBERS = 1 << 21  # inputs evaluated at once: activities of convolutions are many times larger
TEXTS = 64  # texts evaluated at once
SPARING = (
    50  # times what the last checkpoint took must lie before the next: they cost no more than 2 %
)
# What is kept of the record while it grows, but for times.
FOUND = (
    "tasks",
    "identities",
    "contexts",
    "switches",
    "accuracy",
    "macro_f1",
    "density",
    "availability",
    "curves",
)
TABLES = ("accuracy", "macro_f1")
ALONE = ("isolated", "isolated_macro_f1")  # which may come to be known later
KEPT = (*FOUND, *ALONE)


@dataclass(frozen=True)
class _Budget:
    """How much is learned, in which order, what is measured, and how often it is saved."""

    steps: list[int]  # of every task
    epochs: int | None
    batch: int
    seed: int
    evaluate: Schedule | int
    curves: int | None
    save_every: float | None
    keep: bool


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
    part: Literal["test", "validation"] = "test",
    isolated: list[float] | None = None,
    isolated_macro_f1: list[float] | None = None,
    specification: dict[str, Any] | None = None,
    progress: Progress | None = None,
    save_every: float | None = None,
    keep: bool = True,
    command: str | None = None,
) -> Record:
    """Learn every task of the stream in turn, measure, and write the record.

    Args:
        stream: the tasks.
        learner: what learns them.
        out: directory of the run. It is resumed if it was begun, and returned at once if it is
            finished.
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
    _check(stream, steps, epochs, batch, evaluate, curves, isolated)
    told = progress or Quiet()
    asked = specification or _described(
        stream, learner, steps, epochs, batch, seed, evaluate, curves, part
    )
    fresh = Record(
        f"{stream.name} {learner.name}",
        asked,
        stream.source,
        isolated=isolated,
        part=part,
        command=command,
        numerics=NUMERICS,
    )
    fresh.isolated_macro_f1 = isolated_macro_f1
    budget = _Budget(
        steps_of(stream, batch, steps, epochs),
        epochs,
        batch,
        seed,
        evaluate,
        curves,
        save_every,
        keep,
    )
    if out is None:
        return _Run(stream, learner, fresh, budget, told).go()
    folder = folder_made(Path(out))
    with alone_in(folder):
        finished = finished_run(folder, fresh)
        if finished is None:
            return _Run(stream, learner, fresh, budget, told, folder).go()
        if isolated is not None and finished.isolated != isolated:
            finished.isolated, finished.isolated_macro_f1 = isolated, isolated_macro_f1
            finished.save(folder / "record.json")
        return finished


class _Run:
    def __init__(
        self,
        stream: Stream,
        learner: AnyLearner,
        record: Record,
        budget: _Budget,
        progress: Progress,
        folder: Path | None = None,
    ) -> None:
        self.stream, self.learner, self.record, self.budget = stream, learner, record, budget
        self.progress, self.folder = progress, folder
        self.task = self.step = 0
        self.ended = False  # whether the method was told that the task is over
        self.identities: list[int] = []  # of the tasks so far, to recognise one that returns
        self.trained = 0.0  # seconds of the current task
        # when it was last saved, and how long that took
        self.saved, self.saving = (
            time.monotonic(),
            0.0,
        )
        self.last: Path | None = None  # the last whole checkpoint
        self.resumed: Path | None = None  # the one the run went on from, until it has made a step
        self.stop = Stop()

    def go(self) -> Record:
        self._resume()
        steps = self.budget.steps
        self.progress.begin(self.record.name, steps, sum(steps[: self.task]) + self.step)
        try:
            with stoppable() as self.stop:
                while self.task < len(self.stream):
                    self._learn()
                    self._measure()
                    self.task, self.step, self.ended, self.trained = self.task + 1, 0, False, 0.0
                    if self._due(after_task=True):
                        self._save()
                self._finish()
        except checkpoint.WriteError:  # trying again would not help; what was written before stays
            raise
        except Exception as reason:
            self._end_with(reason)
            if self.stop and isinstance(reason, OSError):  # as from a terminal that was closed
                raise self.stop.reason from reason
            raise
        finally:
            self.progress.end()
        if (
            self.stop
        ):  # after the last step: the run is whole, but whoever stopped it wants nothing further
            raise self.stop.reason
        return self.record

    def _end_with(self, reason: Exception) -> None:
        """Save what was learned, if the error came between steps, or raise one that says more."""
        if is_out_of_memory(reason):  # in the middle of a step, which must not be saved
            raise MemoryError(
                f"Memory ran out after step {self.step} of task {self.task + 1}; checkpoints "
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
        if isinstance(reason, ValueError | OSError | FloatingPointError) and (
            self.task or self.step
        ):
            self._save()

    def _finish(self) -> None:
        self.record.environment = environment()
        if self.folder is None:
            return
        if self.budget.keep:
            self._save()
            keep_only(self.folder, [self.last] if self.last else [])
        self.record.save(self.folder / "record.json")
        if not self.budget.keep:
            keep_only(self.folder, [])

    def _learn(self) -> None:
        task, budget, steps = self.stream[self.task], self.budget, self.budget.steps[self.task]
        if len(self.record.contexts) <= self.task:
            if task.identity not in self.identities:
                self.identities.append(task.identity)
            self.record.identities.append(self.identities.index(task.identity))
            # where contexts are inferred, until one is found
            self.record.contexts.append(self.record.identities[-1])
            self.record.tasks.append(task.name)
            self.record.curves.append([])
        if budget.epochs is None and budget.batch > len(task.train):
            samples = f"the {len(task.train)} training samples of task {task.name!r}"
            raise ValueError(
                f"A batch of {budget.batch} is larger than {samples}: choose a smaller one."
            )
        inferred = self.learner.contexts is not None
        context = None if inferred else self.record.contexts[self.task]
        self.learner.expect(outline(task.train, self.stream.classes, steps, budget.epochs))
        begin, key, whole = time.monotonic(), (budget.seed, self.task), budget.epochs is not None
        for rows in batches(task.train, budget.batch, steps, key, self.step, whole=whole):
            x = task.train.x[rows]
            if self.stream.augment is not None:
                x = self.stream.augment(x, (budget.seed, self.task, self.step))
            seen = self.learner.observe(x, task.train.y[rows], context=context)
            if inferred:
                self._note(seen)
            self.step, self.resumed = self.step + 1, None
            self.progress.step(self.task, self.step, seen.loss)
            if budget.curves and (self.step % budget.curves == 0 or self.step == steps):
                begin += self._add_to_curve()
            if self.stop or self._due():
                self.trained += time.monotonic() - begin
                self._save()
                begin = self.saved
                if self.stop:
                    raise self.stop.reason
        if not self.ended and not inferred:  # whoever infers contexts is not told where tasks end
            self.learner.end_task(
                self.task,
                (
                    (task.train.x[i], task.train.y[i])
                    for i in torch.arange(len(task.train)).split(budget.batch)
                ),
            )
        # what a method does at the end of a task is part of its price
        self.trained += time.monotonic() - begin
        self.ended = True

    def _note(self, seen: Observation) -> None:
        """What the detector found in a step: the context the task is in, and that of a switch."""
        self.record.contexts[self.task] = seen.context
        if seen.switched and (self.task, self.step) != (0, 0):
            self.record.switches.append([self.task, self.step, seen.context])

    def _add_to_curve(self) -> float:
        """Measure the task being learned; how long that took."""
        start = time.monotonic()
        right = self._scores(self.task, self.record.contexts[self.task])[0]
        self.record.curves[self.task].append([self.step, right])
        return time.monotonic() - start

    def _measure(self) -> None:
        start = time.monotonic()
        record, last, every = self.record, self.task == len(self.stream) - 1, self.budget.evaluate
        everything = (
            last or every == "all" or (isinstance(every, int) and (self.task + 1) % every == 0)
        )
        accuracies: list[float | None] = []
        f1: list[float | None] = []
        for j in range(self.task + 1):
            if (
                self.stop and j < self.task
            ):  # many tasks take long to measure: it is done anew when the run goes on
                self._save()
                raise self.stop.reason
            accuracy: float | None = None
            macro: float | None = None
            if self.learner.separate and j < self.task:  # its own network: it cannot have changed
                accuracy, macro = record.accuracy[j][j], record.macro_f1[j][j]
            elif everything or j == self.task:
                accuracy, macro = self._scores(j, record.contexts[j])
            accuracies.append(accuracy)
            f1.append(macro)
        density, availability = self._look_inside(record.contexts[self.task])
        # all at once: a run that stops in here finds nothing half-measured
        record.accuracy.append(accuracies)
        record.macro_f1.append(f1)
        record.density.append(density)
        record.availability.append(availability)
        record.seconds.append(
            {"train": round(self.trained, 3), "evaluate": round(time.monotonic() - start, 3)}
        )
        self.progress.task(self.task, record.tasks[-1], accuracies, self.trained)

    def _scores(self, task: int, context: int) -> tuple[float, float]:
        """Accuracy and macro-F1 on a task."""
        split = self.stream.split(task, "test" if self.record.part == "test" else "validation")
        if not len(split):
            raise ValueError(
                f"Task {task + 1} of {self.stream.name} has no {self.record.part} data to measure "
                "on."
            )
        if split.lengths is None:
            parts = math.ceil(
                len(split) / max(1, min(2000, NUMBERS // math.prod(self.stream.shape)))
            )
            rows = torch.arange(len(split)).chunk(parts)
        else:  # texts of one length together: little is padding
            rows = split.lengths.argsort(stable=True).split(TEXTS)
        predicted = torch.cat(
            [self.learner.predict(split.x[i], context=context).argmax(1) for i in rows]
        )
        y = split.y[torch.cat(rows)]
        accuracy = (predicted == y).double().mean().item()
        return accuracy, metrics.macro_f1(
            y, predicted, max(self.stream.classes, int(predicted.max()) + 1)
        )

    def _look_inside(self, context: int) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """The share of open gates by site, and what is frozen and what is free there."""
        gates = gates_of(self.learner.model)
        opened = (
            {}
            if gates is None
            else {
                site: (gain > 0).float().mean().item() for site, gain in gates.gain(context).items()
            }
        )
        handle = None if gates is None else obstruction_of(gates)
        found = {} if handle is None else handle.saturation()
        return opened, {
            site: {"frozen": frozen, "room": room} for site, (frozen, room) in found.items()
        }

    def _due(self, after_task: bool = False) -> bool:
        """Whether it is time for a checkpoint."""
        least = self.budget.save_every
        if least is None:
            least = max(0.0 if after_task else SAVE_EVERY, SPARING * self.saving)
        return time.monotonic() - self.saved > least

    def _save(self) -> None:
        start = time.monotonic()
        self.stop.saving = True
        if self.folder is not None:
            state = {
                "specification": self.record.specification,
                "data": self.record.data,
                "numerics": NUMERICS,
                "position": {
                    "task": self.task,
                    "step": self.step,
                    "ended": self.ended,
                    "identities": self.identities,
                },
                "found": {name: getattr(self.record, name) for name in KEPT}
                | {name: packed(getattr(self.record, name)) for name in TABLES},
                "times": {
                    "trained": self.trained,
                    "seconds": self.record.seconds,
                },  # apart: all else is equal in equal runs
                "learner": self.learner.state_dict(),
            }
            path = checkpoint_path(self.folder, self.task, self.step)
            checkpoint.save(state, path)
            keep_only(self.folder, [path, self.last or path])
            self.last = path
        self.saved, self.saving = time.monotonic(), time.monotonic() - start
        self.stop.saving = False

    def _resume(self) -> None:
        found = None if self.folder is None else newest(self.folder)
        if found is None:
            return
        path, state = found
        parts = ("specification", "data", "position", "found", "learner")
        if not all(isinstance(state.get(part), dict) for part in parts) or not isinstance(
            state.get("times", {}), dict
        ):
            raise ValueError(f"{path} is no checkpoint of this run: delete it to start anew.")
        check_same(
            state["specification"], state["data"], state.get("numerics", 1), self.record, path
        )
        try:
            position, kept, times = _position(
                state, self.budget.steps, self.learner.contexts is not None
            )
            self.learner.load_state_dict(
                state["learner"], Inputs(self.stream.shape, self.stream.classes)
            )
        except (ValueError, OverflowError) as reason:
            raise ValueError(
                f"{path} is no checkpoint of this run ({printable(reason)}): "
                "delete it to start anew."
            ) from reason
        self.task, self.step, self.ended = position["task"], position["step"], position["ended"]
        self.identities = position["identities"]
        self.trained, self.record.seconds = times["trained"], times["seconds"]
        for name in KEPT:
            if name not in ALONE or getattr(self.record, name) is None:
                setattr(self.record, name, kept[name])
        self.last = self.resumed = path


def _position(
    state: Mapping[str, Any], steps: list[int], inferred: bool
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Where a run was, what it had found and how long it took.

    A checkpoint of schema 1 had the times in the other two. All of it is compared with what it must
    be: ValueError says what is not.
    """
    position = {"ended": False} | state["position"]
    held = state["found"]
    found = {**dict.fromkeys(ALONE), "identities": held.get("contexts"), "switches": []} | held
    times = state.get("times") or {
        "trained": position.pop("trained", None),
        "seconds": found.pop("seconds", None),
    }
    check(position.get("task"), Whole(0, len(steps)), "position task")
    task, learner = position["task"], state["learner"]
    check_fits(found, lambda found: dict.fromkeys(KEPT, ANYTHING))
    try:
        found |= {name: unpacked(found[name], (task + 1) ** 2) for name in TABLES}
    except KeyError as reason:
        raise ValueError("found has tables with gaps") from reason
    hints = get_type_hints(Record)
    for name in KEPT:
        if not fits(found[name], hints[name]):
            raise ValueError(f"found {name} is of another kind")
    begun = len(found["tasks"])
    step = Whole(0, [*steps, 0][task] if begun > task else 0)
    identities = (
        [Whole(-(1 << 63), 1 << 63) for _ in position["identities"]]
        if isinstance(position.get("identities"), list)
        else []
    )
    check(
        position,
        {"task": ANYTHING, "step": step, "ended": FLAG, "identities": identities},
        "position",
    )
    check(begun, Whole(task, min(task + 1, len(steps))), "found tasks")
    for name in ("identities", "contexts", "curves"):
        check(len(found[name]), Whole(begun, begun), f"found {name}")
    # A context beyond these would be made when it is asked for, whatever its number is.
    known = (
        len(learner["contexts"]["detector"]["books"])
        if inferred and _has_books(learner)
        else len(identities)
    )
    for k in range(begun):
        check(found["identities"][k], Whole(0, len(identities) - 1), "found identities")
        check(found["contexts"][k], Whole(0, known - 1), "found contexts")
    if not inferred:
        check(
            learner.get("context"),
            Whole(0, len(steps)) if learner.get("context") is not None else None,
            "context",
        )
    for name in (*TABLES, "density", "availability"):
        check(len(found[name]), Whole(task, task), f"found {name}")
    for name in TABLES:
        for k, row in enumerate(found[name]):
            if (
                len(row) != k + 1
                or row[k] is None
                or not all(value is None or 0 <= value <= 1 for value in row)
            ):
                raise ValueError(f"found {name} has gaps, or figures beyond 0 to 1")
    for name in ALONE:
        if found[name] is not None:
            check(len(found[name]), Whole(len(steps), len(steps)), f"found {name}")
            if not all(0 <= value <= 1 for value in found[name]):
                raise ValueError(f"found {name} has figures beyond 0 to 1")
    if (
        not fits(times, dict[str, Any])
        or times.keys() != {"trained", "seconds"}
        or not fits(times["seconds"], hints["seconds"])
    ):
        raise ValueError("times are of another kind")
    check(times["trained"], values_like(0.0), "times trained")
    check(len(times["seconds"]), Whole(task, task), "times seconds")
    if not are_times(times["seconds"]):
        raise ValueError("times seconds must be at least 0, by the names train and evaluate")
    return position, found, times


def _has_books(learner: Mapping[str, Any]) -> bool:
    try:
        return isinstance(learner["contexts"]["detector"]["books"], list)
    except (KeyError, TypeError):
        return False


def is_out_of_memory(reason: BaseException) -> bool:
    """Whether an error says that memory ran out; torch has no class for it on every device."""
    return isinstance(reason, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(
        reason
    )


def _check(
    stream: Stream,
    steps: int,
    epochs: int | None,
    batch: int,
    evaluate: Schedule | int,
    curves: int | None,
    isolated: list[float] | None,
) -> None:
    for name, value in (("steps", steps), ("epochs", epochs), ("batch", batch), ("curves", curves)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is a whole number of at least 1, not {value}.")
    if evaluate not in ("all", "last") and not (isinstance(evaluate, int) and evaluate >= 1):
        raise ValueError(
            f'evaluate is "all", "last" or a number of tasks of at least 1, not {evaluate!r}.'
        )
    if len(stream) < 1:
        raise ValueError("The stream has no task.")
    if isolated is not None and len(isolated) != len(stream):
        raise ValueError(
            f"isolated has {len(isolated)} accuracies for {len(stream)} tasks: "
            "give one for each task."
        )


def _described(
    stream: Stream,
    learner: AnyLearner,
    steps: int,
    epochs: int | None,
    batch: int,
    seed: int,
    *rest: Any,
) -> dict[str, Any]:
    evaluate, curves, part = rest
    return {
        "stream": stream.settings,
        **learner.description,
        **({"steps": steps} if epochs is None else {"epochs": epochs}),
        "batch": batch,
        "seed": seed,
        "evaluate": evaluate,
        "curves": curves,
        "part": part,
    }
