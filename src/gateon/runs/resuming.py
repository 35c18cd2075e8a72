"""Resuming from the newest checkpoint in a directory, if it belongs to this run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..learners.protocol import AnyLearner
from ..parallel.processes import Processes
from ..storage.files import printable
from ..storage.states import Inputs
from ..streams import Stream
from .folder import newest
from .plan import Plan
from .record import Record
from .same_run import ELSEWHERE, check_same
from .state import Held, held_in, is_state

__all__ = ["resume"]


def resume(
    folder: Path,
    stream: Stream,
    learner: AnyLearner,
    record: Record,
    plan: Plan,
    processes: Processes,
) -> tuple[Path, Held] | None:
    """Restore the learner from the newest checkpoint; return its path and what else it holds.

    Args:
        folder: the directory of the run.
        stream: what is learned.
        learner: as it is before the first task.
        record: of the requested run.
        plan: of that run.
        processes: that train together.
    """
    found = newest(folder)
    if found is None:
        return None
    path, state = found
    if not is_state(state):
        raise ValueError(f"{path} is not a checkpoint of this run: delete it to start anew.")
    numerics = state.get("numerics", 1)
    same = check_same(state["specification"], state["data"], numerics, record, path)
    _check_processes(path, state.get("processes", 1), processes.count)
    if not same:
        _check_length(folder, state, plan)
    try:
        held = held_in(
            state,
            plan,
            inferred=learner.contexts is not None,
            separate=learner.separate,
            same_length=same,
        )
        learner.load_state_dict(state["learner"], Inputs(stream.shape, stream.classes))
    except (ValueError, OverflowError) as reason:
        told = printable(reason)
        if same:
            raise ValueError(
                f"{path} is not a checkpoint of this run ({told}): delete it to start anew."
            ) from reason
        raise ValueError(
            f"{folder} cannot go on with {plan.tasks} tasks ({told}): give the learner the "
            f"arguments it had there, or {ELSEWHERE}."
        ) from reason
    return path, held


def _check_processes(path: Path, began: Any, now: int) -> None:
    if began != now:
        raise ValueError(
            f"{path.parent} holds a run of {began} {'process' if began == 1 else 'processes'}, "
            f"and {now} would round its sums differently: go on with {began} (torchrun "
            f"--nproc-per-node {began}), or {ELSEWHERE}."
        )


def _check_length(folder: Path, state: dict[str, Any], plan: Plan) -> None:
    """Refuse to end a run with fewer tasks than it has done."""
    done = state["position"].get("task")
    if isinstance(done, int) and done >= plan.tasks:
        raise ValueError(
            f"{folder} holds this run with more tasks, {done} of them done: "
            f"ask for more than {done}, or {ELSEWHERE}."
        )
