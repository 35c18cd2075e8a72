"""Follows a learner: an electrode in whatever network it has at work, a trace of the whole."""

from __future__ import annotations

from collections.abc import Sequence

from ..gating.gates import Gates, gates_of
from ..learners.learner import Learner
from ..learners.protocol import AnyLearner
from ..learners.work import Work
from .electrode import Electrode
from .trace import EVERY, Trace, sampled

__all__ = ["Recorder", "can_be_traced", "new_trace"]


def can_be_traced(learner: AnyLearner) -> bool:
    """Whether a learner has units with gates to watch."""
    return isinstance(learner, Learner) and gates_of(learner.model) is not None


def new_trace(gates: Gates, sites: Sequence[str], every: int | None = None) -> Trace:
    """An empty trace of the units of a model.

    Args:
        gates: of the model.
        sites: patterns of the names of sites with gates.
        every: steps between samples.
    """
    layers = {name: gates.sites[name].units for name in gates.gates}
    return Trace(layers, sampled(layers, sites), every=EVERY if every is None else every)


class Recorder:
    """Keeps a trace of a learner.

    Args:
        learner: with gates.
        trace: what to add to; what it holds beyond the learner's steps is forgotten.
    """

    def __init__(self, learner: Learner, trace: Trace) -> None:
        self.learner, self.trace = learner, trace
        self._electrode: Electrode | None = None
        self._work: Work | None = None
        self._step = learner.steps
        trace.forget_from(learner.steps)
        learner.watcher = self

    def begin_task(self, task: int) -> None:
        """A task is about to be learned, or goes on."""
        self.trace.begin_task(task, self.learner.steps)

    def remove(self) -> None:
        """Stop watching."""
        self._take_out()
        self.learner.watcher = None

    def before(self, work: Work, step: int) -> None:
        """Put the electrode into the network at work; see `gateon.learners.work.Watcher`."""
        self._step = step
        if work is self._work:
            return
        self._take_out()
        gates = gates_of(work.network)
        assert gates is not None
        self._electrode = Electrode(gates, self.trace.units, self._is_due, work.part)
        self._work = work

    def after(self, work: Work, step: int) -> None:
        """Keep the step, if it is due."""
        if self.trace.is_due(step) and self._electrode is not None:
            context = -1 if work.context is None else work.context
            self.trace.add(step, context, self._electrode.read())

    def _is_due(self) -> bool:
        return self.trace.is_due(self._step)

    def _take_out(self) -> None:
        if self._electrode is not None:
            self._electrode.remove()
        self._electrode = self._work = None
