"""Answers: p(label | x) = sum_k p(context k | x) p(label | x, context k), see `Recogniser`.

Samples are grouped by context, so that a batch of many tasks costs hardly more than one of a
single task: every context's sub-network sees only the samples that may be its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..runs.answers import Answers
from .knowledge import Knowledge
from .task import Task

__all__ = ["Belief", "answers_for", "believed", "logits_of", "scores_of"]

AT_ONCE = 4096  # samples that are recognised together
NEGLIGIBLE = 0.02  # a context less likely than this is not asked about a sample


@dataclass(frozen=True, eq=False)
class Belief:
    """What a model believes about samples.

    Args:
        names: of all labels.
        labels: p(label | x), (samples, names).
        tasks: p(task | x), (samples, tasks); 1 for the one that was told.
        joint: p(task, label | x), (samples, tasks, names).
    """

    names: list[str]
    labels: Tensor
    tasks: Tensor
    joint: Tensor

    def losses(self, labels: Sequence[str]) -> Tensor:
        """- log p(label | x) of these labels, infinite for those that are unknown."""
        numbers = {name: number for number, name in enumerate(self.names)}
        places = torch.tensor([numbers.get(label, -1) for label in labels])
        found = self.labels.gather(1, places.clamp_min(0)[:, None])[:, 0]
        return -torch.where(places >= 0, found, 0.0).log()

    def right(self, labels: Sequence[str]) -> float:
        """The share of samples whose likeliest label is the one given."""
        best: list[int] = self.labels.argmax(1).tolist()
        right = [self.names[n] == name for n, name in zip(best, labels, strict=True)]
        return sum(right) / len(right)


def believed(knowledge: Knowledge, x: Tensor, told: Task | None = None) -> Belief:
    """What the model believes about samples, whose task is given or recognised."""
    scores = scores_of(knowledge, x)
    contexts = _contexts(knowledge, scores, told)
    joint = _rows(knowledge, x, scores, contexts, NEGLIGIBLE if told is None else 0.0)
    names, place = _names(knowledge)
    by_task = torch.zeros(len(x), len(knowledge.tasks), len(names))
    tasks = torch.zeros(len(x), len(knowledge.tasks))
    first = 0
    for number, task in enumerate(knowledge.tasks):
        rows = torch.tensor([row for part in task.parts for row in part.rows])
        by_task[:, number].index_add_(1, place[rows], joint[:, rows])
        tasks[:, number] = contexts[:, first : first + len(task.parts)].sum(1)
        first += len(task.parts)
    return Belief(names, by_task.sum(1), tasks, by_task)


def answers_for(knowledge: Knowledge, x: Tensor, told: Task | None = None) -> Answers:
    """The likeliest label of every sample, the task that says so, and how sure that is."""
    belief = believed(knowledge, x, told)
    probability, best = belief.labels.max(1)
    task = belief.joint[torch.arange(len(x)), :, best].argmax(1)
    known = knowledge.recogniser.known(scores_of(knowledge, x))
    return Answers(
        [belief.names[n] for n in best.tolist()],
        probability.double().clamp(0, 1).numpy(),
        [knowledge.tasks[n].name for n in task.tolist()],
        belief.tasks.gather(1, task[:, None])[:, 0].double().clamp(0, 1).numpy(),
        known.numpy(),
    )


def scores_of(knowledge: Knowledge, x: Tensor) -> Tensor:
    """The recogniser's scores of all rows for samples."""
    parts = x.split(AT_ONCE)
    return torch.cat(
        [knowledge.recogniser.scores(knowledge.front.recognised_by(some.float())) for some in parts]
    )


def logits_of(knowledge: Knowledge, x: Tensor, asked: Tensor) -> Tensor:
    """The network's logits for samples, in the contexts asked, (samples, rows).

    Args:
        knowledge: whose network.
        x: samples.
        asked: whether to ask each context, (samples, contexts); rows of others are 0.
    """
    logits = torch.zeros(len(x), len(knowledge.recogniser.owner))
    for number, part in enumerate(knowledge.parts):
        samples = asked[:, number].nonzero()[:, 0]
        if len(samples):
            own = knowledge.network.logits(x[samples].float(), part.context, part.rows)
            logits[samples[:, None], torch.tensor(part.rows)] = own
    return logits


def _contexts(knowledge: Knowledge, scores: Tensor, told: Task | None) -> Tensor:
    """p(context | x), (samples, contexts); only those of the task that is told."""
    parts = knowledge.parts
    if told is not None and len(told.parts) == 1:
        chosen = parts.index(told.parts[0])
        return torch.eye(len(parts))[chosen].expand(len(scores), -1)
    found = knowledge.recogniser.tasks(scores)[:, [part.context for part in parts]]
    if told is None:
        return found
    own = torch.tensor([part in told.parts for part in parts])
    found = torch.where(own, found.clamp_min(torch.finfo(found.dtype).tiny), 0.0)
    return found / found.sum(1, keepdim=True)


def _rows(
    knowledge: Knowledge, x: Tensor, scores: Tensor, contexts: Tensor, negligible: float
) -> Tensor:
    """p(context k | x) p(label | x, context k) by row of the output layer, (samples, rows)."""
    least = contexts.amax(1, keepdim=True).clamp_max(negligible)
    likely = torch.where(contexts >= least, contexts, 0.0)
    likely = likely / likely.sum(1, keepdim=True)
    joint = knowledge.recogniser.within(scores, logits_of(knowledge, x, likely > 0))
    for number, part in enumerate(knowledge.parts):
        joint[:, list(part.rows)] *= likely[:, number, None]
    return joint


def _names(knowledge: Knowledge) -> tuple[list[str], Tensor]:
    """All labels by name, and which of them each row of the output layer has."""
    of_row = {
        row: label
        for part in knowledge.parts
        for row, label in zip(part.rows, part.labels, strict=True)
    }
    names = list(dict.fromkeys(of_row[row] for row in sorted(of_row)))
    numbers = {name: number for number, name in enumerate(names)}
    return names, torch.tensor([numbers[of_row[row]] for row in sorted(of_row)])
