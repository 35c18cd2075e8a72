"""A trained model from the directory of a run, ready to answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..learners.protocol import AnyLearner
from ..storage.files import printable
from ..storage.states import Inputs
from .answering import LoadedRun
from .as_json import fits
from .folder import finished_record, newest
from .record import Record
from .restore import last_state
from .specification import Specification
from .stand_in import stand_in
from .state import found_in, is_state

__all__ = ["load_run"]

MOST = 10**6  # tasks, classes, or the length of an input


def load_run(folder: str | Path, learner: AnyLearner | None = None) -> LoadedRun:
    """Load what a run has learned, finished or not; its data are not needed.

    Torch's random generator and number of threads are left unchanged.

    Args:
        folder: the directory.
        learner: for a run started from Python, its learner, made with the same arguments.

    >>> import tempfile
    >>> import numpy as np
    >>> from gateon.runs.specified import run_specification
    >>> folder = Path(tempfile.mkdtemp())
    >>> small = {"stream.tasks": 2, "stream.data": "mnist-5k", "network.hidden": (50,)}
    >>> asked = {"stream.name": "split-mnist", "training.steps": 20, "training.batch": 100, **small}
    >>> record = run_specification(Specification.from_options(asked), folder)
    >>> model = load_run(folder)
    >>> answers = model.predict(np.zeros((3, 1, 28, 28), np.float32), task="digits 4 1")
    >>> len(answers), answers.tasks[0], answers.labels[0] in ("4", "1")
    (3, 'digits 4 1', True)
    """
    folder = Path(folder)
    path, state = _last_state(folder)
    try:
        record = finished_record(folder) or _record_in(state)
        tasks = _inputs_in(state).get("tasks", len(record.tasks))
    except ValueError as reason:
        raise ValueError(
            f"{path} is not a checkpoint of a run ({printable(reason)}): "
            "choose the directory of one."
        ) from reason
    specification = None
    with _as_before():
        if learner is None:
            specification = _specification(folder, record)
            learner = _made(specification, record, tasks)
        inputs = None if record.shape is None else Inputs(tuple(record.shape), record.classes or 0)
        try:
            learner.load_state_dict(state["learner"], inputs)
        except (ValueError, OverflowError) as reason:
            raise ValueError(f"{path} does not fit this learner: {printable(reason)}.") from reason
    return LoadedRun(record, learner, specification)


def _last_state(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The end of the finished run in a directory, else the newest checkpoint."""
    if not folder.is_dir():
        raise ValueError(f"There is no directory {folder}: give the directory of a run.")
    record = finished_record(folder)
    found = newest(folder) if record is None else last_state(folder, record)
    if found is None:
        held = "no run" if record is None else "a run without its last checkpoint"
        raise ValueError(f"{folder} holds {held}: there is no model to load.")
    if not is_state(found[1]):
        raise ValueError(f"{found[0]} is not a checkpoint of a run: choose the directory of one.")
    return found


def _record_in(state: dict[str, Any]) -> Record:
    """The record of a run that is not finished."""
    inputs = _inputs_in(state)
    return Record(
        name="unfinished",
        specification=state["specification"],
        data=state["data"],
        shape=inputs.get("shape"),
        classes=inputs.get("classes"),
        **found_in(state),
    )


def _inputs_in(state: dict[str, Any]) -> dict[str, Any]:
    """Shape, classes and number of tasks of a run; checkpoints of an older gateon lack them."""
    inputs: dict[str, Any] = state.get("inputs", {})
    if not fits(inputs, dict[str, Any]):
        raise ValueError("inputs must be a table")
    shape = inputs.get("shape") or []
    counts = [value for name, value in inputs.items() if name != "shape" and value is not None]
    if not fits(shape, list[int]) or not fits(counts, list[int]):
        raise ValueError("inputs must be a shape and numbers")
    if not all(1 <= value <= MOST for value in [*shape, *counts]):
        raise ValueError(f"inputs must be between 1 and {MOST}")
    return inputs


def _specification(folder: Path, record: Record) -> Specification:
    try:
        return Specification.from_options(record.specification)
    except ValueError as reason:
        told = str(reason).rstrip(".")
        raise ValueError(
            f"{folder} holds a run started from Python ({told}): give load_run its learner, "
            "made with the arguments it had there."
        ) from reason


def _made(asked: Specification, record: Record, tasks: int) -> AnyLearner:
    """The learner of a specification, on a processor where its device is missing."""
    try:
        asked.training.find_device()
    except ValueError:
        asked = asked.with_options({"training.device": "cpu"})
    return asked.make_learner(stand_in(asked, record, tasks))


@contextmanager
def _as_before() -> Iterator[None]:
    """Torch's generator and number of threads as they were."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            torch.set_num_threads(threads)
