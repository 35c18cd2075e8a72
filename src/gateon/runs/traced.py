"""The trace of a run: single units over time, in one file beside its record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..gating.gates import gates_of
from ..learners.learner import Learner
from ..learners.protocol import AnyLearner
from ..tracing.recorder import Recorder, can_be_traced, new_trace
from ..tracing.trace import Trace
from .record import TRACE

__all__ = ["check_traced", "recorder_for"]


def recorder_for(
    folder: Path | None,
    learner: AnyLearner,
    sites: Sequence[str] | None,
    every: int | None,
    processes: int,
) -> Recorder | None:
    """What keeps the trace of a run from here on: a new one, or the one begun in its directory.

    Args:
        folder: of the run, if it has one.
        learner: where the run is now.
        sites: patterns of the names of sites; None if no trace is asked for.
        every: steps between samples.
        processes: how many train together.
    """
    path = None if folder is None else folder / TRACE
    held = Trace.load(path) if path is not None and path.exists() else None
    if sites is None and held is None:
        return None
    if path is None:
        raise ValueError("A trace is a file in the directory of the run: say which with out=.")
    if processes > 1:
        raise ValueError("A trace is of one process: leave it out, or train in one.")
    gates = gates_of(learner.model) if can_be_traced(learner) else None
    if gates is None or not isinstance(learner, Learner):
        raise ValueError(
            f"{learner.name} has no gates, and so no units to trace: leave the trace out, or "
            "choose another method."
        )
    usual = new_trace(gates, sites or ["*"], every)
    if held is not None and held.layers != usual.layers:
        raise ValueError(f"{path} is the trace of another network: move it away.")
    if held is not None and sites is not None and not _alike(held, usual):
        raise ValueError(
            f"{folder} is traced already, every {held.asked} steps at {', '.join(held.sites)}: "
            "leave the trace out to go on so, or choose another directory."
        )
    return Recorder(learner, usual if held is None else held)


def check_traced(folder: Path, sites: Sequence[str] | None) -> None:
    """Refuse to trace a run that is finished already."""
    if sites is not None and not (folder / TRACE).exists():
        raise ValueError(
            f"{folder} holds this run, finished without a trace: choose another directory to "
            "run it again with one."
        )


def _alike(one: Trace, other: Trace) -> bool:
    units = ({name: u.tolist() for name, u in trace.units.items()} for trace in (one, other))
    return one.asked == other.asked and next(units) == next(units)
