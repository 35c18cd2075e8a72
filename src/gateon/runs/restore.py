"""The learner of a finished run, from its last checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from ..learners.protocol import AnyLearner
from ..storage import checkpoint
from ..storage.files import CheckpointWarning, printable
from ..storage.states import Inputs
from .folder import last_checkpoint
from .record import Record
from .same_run import check_same
from .state import is_state

__all__ = ["last_state", "restore_finished"]


def last_state(folder: Path, record: Record) -> tuple[Path, dict[str, Any]] | None:
    """The last checkpoint of the finished run in a directory, and its state, if it was kept."""
    path = last_checkpoint(folder, len(record.tasks))
    if path is None:
        return None
    state = checkpoint.load(path)
    if not is_state(state):
        raise ValueError(f"{path} is not a checkpoint of a run: move it away.")
    check_same(state["specification"], state["data"], state.get("numerics", 1), record, path)
    return path, state


def restore_finished(folder: Path, record: Record, learner: AnyLearner, inputs: Inputs) -> None:
    """Give a learner what the finished run in a directory has learned; warn if it was not kept.

    Args:
        folder: the directory of the run.
        record: of the run.
        learner: made with the same arguments as that of the run.
        inputs: what batches look like.
    """
    found = last_state(folder, record)
    if found is None:
        warnings.warn(
            f"{folder} holds a finished run without its last checkpoint, so that the learner has "
            "not learned its tasks: delete record.json there to learn them again.",
            CheckpointWarning,
            stacklevel=3,
        )
        return
    path, state = found
    try:
        learner.load_state_dict(state["learner"], inputs)
    except (ValueError, OverflowError) as reason:
        raise ValueError(
            f"{path} does not fit this learner ({printable(reason)}): "
            "make it with the arguments it had in the run."
        ) from reason
