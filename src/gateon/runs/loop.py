"""The loop of a run: learn, measure and save, task by task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..detection.infer import Observation
from ..learners.protocol import AnyLearner
from ..parallel.lost import LostError
from ..parallel.processes import Processes
from ..storage.checkpoint import WriteError
from ..streams import Stream, Task
from ..tracing.recorder import Recorder
from .batches import batches, outline
from .environment import environment
from .failures import explained
from .folder import keep_only
from .measure import look_inside, scores
from .plan import Part, Plan
from .progress import Progress
from .record import TRACE, Record
from .resuming import resume
from .saving import Saver
from .state import ALONE, Position, state_of
from .stopping import Stop, stoppable
from .traced import recorder_for

__all__ = ["Loop"]


class Loop:
    """Learns the tasks of a stream one by one, measures after each, and saves.

    Args:
        stream: the tasks.
        learner: what learns them.
        record: receives the results.
        plan: how much is learned, and when it is measured and saved.
        progress: receives reports.
        processes: that train together.
        folder: directory of the run, if it has one; it goes on from the newest checkpoint there.
        first: the last checkpoint of the finished run that this one extends.
        trace: patterns of the sites whose units are traced; None for none.
        trace_every: steps between samples of the trace.
    """

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
        trace: Sequence[str] | None = None,
        trace_every: int | None = None,
    ) -> None:
        self.stream, self.learner, self.record, self.plan = stream, learner, record, plan
        self.progress, self.processes, self.folder = progress, processes, folder
        self.at = Position()
        self.trained = 0.0  # seconds of training in the current task
        self.saver = Saver(folder, plan.save_every, processes, pinned=first)
        self.resumed: Path | None = None  # the checkpoint resumed from, until a step is made
        self.stop = Stop()
        self.trace, self.trace_every = trace, trace_every
        self.recorder: Recorder | None = None

    def go(self) -> Record:
        """Learn from the current position to the end; return the record."""
        self._resume()
        traced = (self.trace, self.trace_every, self.processes.count)
        self.recorder = recorder_for(self.folder, self.learner, *traced)
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
        except (WriteError, LostError):  # trying again would not help; what was written stays
            raise
        except Exception as reason:
            self._end_with(reason)
            if self.stop and isinstance(reason, OSError):  # as from a terminal that was closed
                raise self.stop.reason from reason
            raise
        finally:
            self.progress.end()
            if self.recorder is not None:
                self.recorder.remove()
        if self.stop:  # after the last step: the run is whole, but nothing further is wanted
            raise self.stop.reason
        return self.record

    # Learning.

    def _learn_task(self) -> None:
        task = self.stream[self.at.task]
        self._check_batch(task)
        if len(self.record.contexts) <= self.at.task:
            self._begin_task(task)
        if self.recorder is not None:
            self.recorder.begin_task(self.at.task)
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
        record.losses.append([])
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
        """Tell the learner; what its method does then counts as training time."""
        begin, rows = time.monotonic(), torch.arange(len(task.train)).split(self.plan.batch)
        if not self.at.ended and not self._infers:  # else it is not told where tasks end
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
        task, step, record = self.at.task, self.at.step, self.record
        if seen.suspected or self.plan.keeps_loss(task, step):
            record.losses[task].append([step, float(f"{seen.loss:.4g}"), float(seen.suspected)])
        if seen.switched and (task, step) != (0, 0):
            known = {*record.contexts[:task], *(switch[2] for switch in record.switches), 0}
            record.switches.append([task, step, seen.context])
            self.progress.found(task, step, seen.context, seen.context not in known)
        record.contexts[task] = seen.context

    def _check_batch(self, task: Task) -> None:
        size, samples = self.plan.batch, len(task.train)
        if self.plan.epochs is None and size > samples:
            raise ValueError(
                f"A batch of {size} is larger than the {samples} training samples of task "
                f"{task.name!r}: choose a smaller one."
            )

    # Measuring.

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
        """Measure the task being learned; return how long that took."""
        start = time.monotonic()
        right, _ = self._scores(self.at.task)
        self.record.curves[self.at.task].append([self.at.step, right])
        return time.monotonic() - start

    def _scores(self, task: int) -> tuple[float, float]:
        part: Part = "test" if self.record.part == "test" else "validation"
        return scores(self.learner, self.stream, task, self.record.contexts[task], part)

    # Saving.

    def _save(self) -> None:
        self.stop.saving = True
        if self.folder is None:
            self.saver.rest(0.0)
        else:
            self.processes.check_alike(self.learner.model)
            self._save_trace()  # first: what it has beyond a checkpoint is forgotten on resuming
            self.saver.save(self._state, self.at.task, self.at.step)
        self.stop.saving = False

    def _save_trace(self) -> None:
        if self.recorder is not None and self.folder is not None:
            self.recorder.trace.save(self.folder / TRACE)

    def _state(self) -> dict[str, Any]:
        state = state_of(self.record, self.at, self.trained, self.learner, self.plan.tasks)
        return state | {"processes": self.processes.count}

    def _stop_if_asked(self) -> None:
        """All processes stop where any of them was asked to."""
        if self.processes.any(bool(self.stop)):
            raise self.stop.reason

    def _resume(self) -> None:
        if self.folder is None:
            return
        found = resume(
            self.folder, self.stream, self.learner, self.record, self.plan, self.processes
        )
        if found is None:
            return
        self.resumed, held = found
        self.saver.last = self.resumed
        self.at, self.trained = held.position, held.trained
        self.record.seconds = held.seconds
        for name, value in held.found.items():
            if name not in ALONE or getattr(self.record, name) is None:
                setattr(self.record, name, value)

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
        self._save_trace()
        if self.plan.keep:
            keep_only(self.folder, [self.saver.last] if self.saver.last else [])
        self.record.save(self.folder / "record.json")
        if not self.plan.keep:
            keep_only(self.folder, [])

    def _end_with(self, reason: Exception) -> None:
        """Save what was learned, if the error came between steps, or raise one that says more."""
        at = self.at
        more = explained(reason, at, self.resumed)
        if more is not None:
            raise more from reason
        if self.processes.count > 1:  # the others may not have come as far
            return
        between = isinstance(reason, ValueError | OSError | FloatingPointError)
        if between and (at.task or at.step):
            self._save()
