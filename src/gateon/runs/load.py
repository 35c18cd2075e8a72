"""A trained model out of the directory of a run, to answer with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..anatomy.contextual import contexts_of
from ..detection.infer import recognised
from ..learners.learner import Learner
from ..learners.protocol import AnyLearner
from ..networks import pretrained
from ..networks.section import Language
from ..storage.files import printable
from ..storage.states import Inputs
from ..streams.data.tokens import tokenised
from .as_json import fits
from .folder import finished_record, newest
from .record import Record
from .restore import last_state
from .specification import Specification
from .stand_in import stand_in
from .state import found_in, is_state

__all__ = ["Answers", "LoadedRun", "load_run"]

AT_ONCE = 500  # samples answered together

Text = str | tuple[str, str | None]


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model says about samples, column by column.

    Args:
        labels: the likeliest label of each, by its name.
        probabilities: of that label.
        tasks: the task of each; empty where the network is the same in all.
        certainty: of that task, from 0 to 1; 1 where it was told.
    """

    labels: list[str]
    probabilities: NDArray[np.float64]
    tasks: list[str]
    certainty: NDArray[np.float64]

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """What a run has learned.

    Args:
        record: of the run.
        learner: with everything it learned, to go on with or to look into.
        specification: what the run was asked for; None if it was begun from Python.
    """

    record: Record
    learner: AnyLearner
    specification: Specification | None = None

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks that were learned."""
        return self.record.tasks

    @torch.no_grad()
    def predict(self, x: Any, task: str | int | None = None) -> Answers:
        """Labels by name, their probabilities, and the tasks the samples belong to.

        Args:
            x: inputs as the stream makes them, a tensor or an array of shape (N, ...); of a run on
                texts, the texts or pairs of texts themselves, or their tokens.
            task: name or number of the task they all belong to. None recognises that of each
                sample by how sure the network is, which errs more often than where it is told.
        """
        inputs = self._inputs(x)
        contexts = self._contexts(task)
        at_once = [self._answers(some, contexts) for some in inputs.split(AT_ONCE)]
        outputs, places, certainty = (torch.cat(column) for column in zip(*at_once, strict=True))
        found = outputs.double().softmax(1).max(1)
        told = None if task is None else self._number(task)
        tasks = [self._task_of(contexts[place]) if told is None else told for place in places]
        return Answers(
            [self._label(k, label) for k, label in zip(tasks, found.indices.tolist(), strict=True)],
            found.values.numpy(),
            ["" if k is None else self.tasks[k] for k in tasks],
            certainty.double().numpy(),
        )

    def _answers(self, x: Tensor, contexts: Sequence[int | None]) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs, which of the contexts each sample is in, and how certain that is."""
        if len(contexts) == 1:
            certainty = torch.full((len(x),), 0.0 if contexts[0] is None else 1.0)
            nought = torch.zeros(len(x), dtype=torch.int64)
            return self.learner.predict(x, context=contexts[0]), nought, certainty
        assert isinstance(self.learner, Learner)
        known = [context for context in contexts if context is not None]
        outputs = list(self.learner.outputs_under(x, known))
        seen = recognised(outputs, each=True)
        rows = torch.arange(len(x))
        return torch.stack(outputs)[seen.context, rows], seen.context, seen.certainty

    def _contexts(self, task: str | int | None) -> list[int | None]:
        """The contexts that samples may be in; None stands for a network without contexts."""
        if task is not None:
            return [self.record.contexts[self._number(task)]]
        if isinstance(self.learner, Learner):
            if contexts_of(self.learner.model) is None:
                return [None]
            return list(dict.fromkeys(self.record.contexts))
        raise ValueError(
            f"A learner {self.learner.name} must be told the task of the samples: "
            f"choose one of {', '.join(map(printable, self.tasks))}."
        )

    def _number(self, task: str | int) -> int:
        if isinstance(task, str) and task in self.tasks:
            return self.tasks.index(task)
        if isinstance(task, int) and 0 <= task < len(self.tasks):
            return task
        names = ", ".join(map(printable, self.tasks))
        raise ValueError(f"There is no task {task!r}: choose one of {names}.")

    def _task_of(self, context: int | None) -> int | None:
        """The task that was learned last in a context."""
        if context is None:
            return 0 if len(self.tasks) == 1 else None
        held = [k for k, one in enumerate(self.record.contexts) if one == context]
        return held[-1]

    def _label(self, task: int | None, label: int) -> str:
        """The name of a label; without a task, if it has the same one in all of them."""
        some = self.record.labels if task is None else self.record.labels[task : task + 1]
        named = {names[label] if label < len(names) else str(label) for names in some}
        return named.pop() if len(named) == 1 else str(label)

    def _inputs(self, x: Any) -> Tensor:
        """Inputs as a tensor of the right shape."""
        if isinstance(x, str):
            raise ValueError("Give a list of texts, not a single one.")
        if len(x) and isinstance(x[0], str | tuple):
            return self._tokens(x)
        made = torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x)
        shape, is_text = self.record.shape, self._language is not None
        whole = made.dim() > 1 and (is_text or shape is None or list(made.shape[1:]) == shape)
        if not whole or not len(made):
            wanted = "..." if shape is None else ", ".join(map(str, shape))
            raise ValueError(
                f"Inputs must have the shape (N, {wanted}) with N of at least 1, "
                f"got {tuple(made.shape)}."
            )
        if is_text:
            return made.long()
        if not made.is_floating_point():
            raise ValueError(
                f"Inputs must be floating-point numbers as the stream makes them, got {made.dtype}."
            )
        return made.float()

    @property
    def _language(self) -> Language | None:
        network = None if self.specification is None else self.specification.network
        return network if isinstance(network, Language) else None

    def _tokens(self, texts: Sequence[Text]) -> Tensor:
        if self._language is None or self.record.shape is None:
            raise ValueError(
                "This run has learned no texts: give numbers as its stream makes them."
            )
        tokenizer, length = pretrained.tokenizer(self._language.model), self.record.shape[0]
        pairs = [(text, None) if isinstance(text, str) else text for text in texts]
        held = tokenised(pairs, tokenizer, length)
        return held.table(np.arange(len(pairs)), int(held.lengths.max()), tokenizer.pad_token_id)


def load_run(folder: str | Path, learner: AnyLearner | None = None) -> LoadedRun:
    """What the run in a directory has learned, finished or not; its data are not needed.

    The generator of random numbers and the number of threads stay as they are.

    Args:
        folder: the directory.
        learner: of a run that was begun from Python: made with the arguments it had there.

    >>> import tempfile
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
    record = finished_record(folder) or _record_in(state)
    specification = None
    with _as_before():
        if learner is None:
            specification = _specification(folder, record)
            learner = _made(specification, record, state)
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
        raise ValueError(f"{found[0]} is no checkpoint of a run: choose the directory of one.")
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
    counts = {name: value for name, value in inputs.items() if name != "shape"}
    if not fits(counts, dict[str, int]) or not fits(inputs.get("shape"), list[int] | None):
        raise ValueError("The inputs of a checkpoint must be a shape and two numbers.")
    return inputs


def _specification(folder: Path, record: Record) -> Specification:
    try:
        return Specification.from_options(record.specification)
    except ValueError as reason:
        told = str(reason).rstrip(".")
        raise ValueError(
            f"{folder} holds a run that was begun from Python ({told}): give load_run its learner, "
            "made with the arguments it had there."
        ) from reason


def _made(asked: Specification, record: Record, state: dict[str, Any]) -> AnyLearner:
    """The learner of a specification, on a processor where its device is missing."""
    tasks = _inputs_in(state).get("tasks", len(record.tasks))
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
