"""Recogniser: the task and the label of single samples, from sums that nothing forgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .ridge import Ridge

__all__ = ["Recognised", "Recogniser"]

SHARPNESS = [10 ** (n / 20) for n in range(-20, 51)]  # 0.1 to 316, tried when calibrating


@dataclass(frozen=True, eq=False)
class Recognised:
    """What is recognised in samples.

    Args:
        task: the likeliest of each sample.
        certainty: its probability.
        known: whether the sample belongs to any task at all.
        rows: p(row | x), (samples, rows); a row is one label of one task.
    """

    task: Tensor
    certainty: Tensor
    known: Tensor
    rows: Tensor


class Recogniser:
    """Ridge regression over all rows, and, where it is asked, a network with a context per task.

    A row is one label of one task. With s the scores of the ridge and z a network's logits of each
    row in the context of its task,

        p(k | x)    = sum over rows r of k of softmax(a s)_r
        p(r | x, k) = softmax over rows r of k of (log_softmax_k(b s)_r + log_softmax_k(c z)_r) / 2
        p(r | x)    = p(k | x) p(r | x, k)

    where a, b and c are the numbers under which held-out samples are likeliest. A sample belongs to
    no task if its highest score is below that of all but a twentieth of the held-out samples.

    Sums do not depend on the order of samples or tasks, and no sample is kept. The inputs must not
    change as learning goes on: pixels, columns, or features of a frozen encoder. Memory is
    width^2 / 2 numbers for all tasks, and `width` for each row.

    Args:
        inputs: numbers in one sample.
        width: random features of the ridge.
        strength: of the ridge, for numbers of about size 1.
        seed: of the random features.
        accepted: share of held-out samples that count as known.

    >>> recogniser = Recogniser(inputs=2, width=64)
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> recogniser.add(x[:2], torch.tensor([0, 1]), task=0)
    >>> recogniser.add(x[2:], torch.tensor([2]), task=1)
    >>> recogniser.recognise(x).task
    tensor([0, 0, 1])
    """

    def __init__(
        self,
        inputs: int,
        width: int = 4000,
        strength: float = 10.0,
        seed: int = 0,
        accepted: float = 0.95,
    ) -> None:
        if not 0 < accepted <= 1:
            raise ValueError(f"accepted must be above 0 and at most 1, got {accepted}.")
        self.accepted = accepted
        self.ridge = Ridge(inputs, width, strength, seed)
        self.owner = torch.zeros(0, dtype=torch.int64)  # the task of each row, -1: of none yet
        self.a, self.b, self.c, self.least = 20.0, 20.0, 1.0, -math.inf

    def add(self, x: Tensor, row: Tensor, task: int) -> None:
        """Add samples of a task.

        Args:
            x: samples (samples, inputs).
            row: of each; new ones may come at any time.
            task: the task they all belong to.
        """
        inputs = self.ridge.inputs
        if x.dim() != 2 or x.shape[1] != inputs or row.shape != (len(x),):
            raise ValueError(
                f"Samples must be (N, {inputs}) with N rows, got {tuple(x.shape)} and "
                f"{tuple(row.shape)}."
            )
        if not len(x):
            return
        if int(row.min()) < 0 or task < 0:
            raise ValueError(f"Rows and tasks count from 0, got {int(row.min())} and {task}.")
        if not x.isfinite().all():
            raise ValueError("Samples must be finite: nothing was added.")
        rows = max(len(self.owner), 1 + int(row.max()))
        owner = F.pad(self.owner, (0, rows - len(self.owner)), value=-1)
        other = (owner[row] >= 0) & (owner[row] != task)
        if other.any():
            taken = int(row[other][0])
            raise ValueError(f"Row {taken} belongs to task {int(owner[taken])}, not to {task}.")
        self.ridge.add(self._scaled(x), row, rows)
        owner[row] = task
        self.owner = owner

    def scores(self, x: Tensor) -> Tensor:
        """Scores of the ridge, (samples, rows)."""
        self._check_learned()
        return self.ridge.scores(self._scaled(x))

    def recognise(self, x: Tensor, logits: Tensor | None = None) -> Recognised:
        """The task of each sample, and the probability of every row.

        Args:
            x: samples (samples, inputs).
            logits: of every row in the context of its task; equal numbers for the rows of a task
                that was not asked. Without them p(r | x, k) is that of the ridge.
        """
        scores = self.scores(x)
        tasks = self.tasks(scores)
        rows = tasks[:, self.owner.clamp_min(0)] * self.within(scores, logits)
        certainty, task = tasks.max(1)
        return Recognised(task, certainty, self.known(scores), rows)

    def tasks(self, scores: Tensor) -> Tensor:
        """p(k | x), (samples, tasks)."""
        p = (self.a * self._masked(scores)).softmax(1)
        found = torch.zeros(len(p), 1 + int(self.owner.max()))
        return found.index_add_(1, self.owner.clamp_min(0), p)

    def within(self, scores: Tensor, logits: Tensor | None = None) -> Tensor:
        """p(r | x, k) of every row r in its task k, (samples, rows); logits as in `recognise`."""
        found = torch.zeros_like(scores)
        for task in range(1 + int(self.owner.max())):
            of = self.owner == task
            opinion = (self.b * scores[:, of]).log_softmax(1)
            if logits is not None:
                opinion = (opinion + (self.c * logits[:, of]).log_softmax(1)) / 2
            found[:, of] = opinion.softmax(1)
        return found

    def known(self, scores: Tensor) -> Tensor:
        """Whether each sample belongs to any task at all."""
        return self._masked(scores).amax(1) >= self.least

    def calibrate(self, x: Tensor, row: Tensor, logits: Tensor | None = None) -> None:
        """Set a, b, c and the threshold for known samples, on samples that were not added.

        Args:
            x: samples (samples, inputs).
            row: of each.
            logits: as for `recognise`, with every sample's own task asked.
        """
        if not len(x):
            return
        added = (self.owner >= 0).nonzero()[:, 0]
        if not torch.isin(row, added).all():
            raise ValueError("Some rows have no sample yet: add them before calibrating.")
        scores = self.scores(x)
        own = self._only(self.owner[row])

        def told(values: Tensor) -> Callable[[float], Tensor]:
            return lambda scale: F.cross_entropy((scale * values).masked_fill(~own, -math.inf), row)

        used = self._masked(scores)
        self.a = _likeliest(lambda scale: F.cross_entropy(scale * used, row))
        self.b = _likeliest(told(scores))
        self.c = self.c if logits is None else _likeliest(told(logits))
        highest = used.amax(1).sort().values
        self.least = float(highest[int((1 - self.accepted) * len(highest))])

    def state_dict(self) -> dict[str, Any]:
        """The sums, the task of each row, and the calibration."""
        calibrated = {"a": self.a, "b": self.b, "c": self.c, "least": self.least}
        return {"ridge": self.ridge.state_dict(), "owner": self.owner.clone(), **calibrated}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; change nothing if it does not fit."""
        owner, numbers = state["owner"], [float(state[name]) for name in ("a", "b", "c", "least")]
        if len(owner) != state["ridge"]["C"].shape[1] or any(map(math.isnan, numbers)):
            raise ValueError("This state of a recogniser is damaged: nothing was taken over.")
        self.ridge.load_state_dict(state["ridge"])
        self.owner = owner.clone()
        self.a, self.b, self.c, self.least = numbers

    def _scaled(self, x: Tensor) -> Tensor:
        """Numbers of size 1 make a sample of length 1, which `strength` is meant for."""
        length: float = self.ridge.inputs**0.5
        return x.float() / length

    def _check_learned(self) -> None:
        if not (self.owner >= 0).any():
            raise ValueError("Nothing was added yet, so nothing can be recognised.")

    def _masked(self, scores: Tensor) -> Tensor:
        """Without rows that have no sample yet."""
        return scores.masked_fill(self.owner < 0, -math.inf)

    def _only(self, task: Tensor) -> Tensor:
        """Whether a row is of each sample's task, (samples, rows)."""
        return self.owner[None] == task[:, None]


def _likeliest(loss: Callable[[float], Tensor]) -> float:
    losses = [loss(scale).item() for scale in SHARPNESS]
    return SHARPNESS[losses.index(min(losses))]
