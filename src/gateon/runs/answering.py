"""Answers from what a run has learned: labels by name, probabilities, tasks and certainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..anatomy.contextual import contexts_of
from ..detection.infer import recognised
from ..learners.learner import Learner
from ..learners.protocol import AnyLearner
from ..networks import pretrained
from ..networks.section import Language
from ..storage.files import printable
from ..streams.data.tokens import tokenised
from .answers import Answers
from .record import Record
from .shown import record_html
from .specification import Specification

__all__ = ["LoadedRun"]

AT_ONCE = 500  # samples answered together

Text = str | tuple[str, str | None]


@dataclass(frozen=True, eq=False, repr=False)
class LoadedRun:
    """What a run has learned.

    Args:
        record: of the run.
        learner: with everything it learned, to train further or to inspect.
        specification: that of the run; None if it was started from Python.
    """

    record: Record
    learner: AnyLearner
    specification: Specification | None = None

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks that were learned."""
        return self.record.tasks

    def __repr__(self) -> str:
        """Its name and how many tasks it has learned."""
        return f"LoadedRun({printable(self.record.name)!r}, tasks={len(self.tasks)})"

    def _repr_html_(self) -> str:
        return record_html(self.record)

    @torch.no_grad()
    def predict(self, x: Any, task: str | int | None = None) -> Answers:
        """Labels by name, their probabilities, and the tasks the samples belong to.

        Args:
            x: inputs as the stream makes them, a tensor or an array of shape (N, ...); of a run on
                texts, the texts or pairs of texts, or their tokens.
            task: name or number of the task they all belong to. None recognises that of each
                sample by how sure the network is, which is less reliable than giving it.
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
            np.ones(len(places), np.bool_),
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
