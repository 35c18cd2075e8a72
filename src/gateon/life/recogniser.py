"""Which task and label a single sample looks like, from statistics that nothing forgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..detection.ridge import Ridge

__all__ = ["Recogniser"]

ACCEPTED = 0.95  # share of held-out samples that count as belonging to a known task
SHARPEST = 200.0


class Recogniser:
    """Ridge regression over all labels of all tasks; tasks are sums over their labels.

    p(r | x) = softmax(sharpness * score_r(x)),  p(task k | x) = sum over its rows r of p(r | x)

    The sharpness is that under which held-out samples are likeliest. A sample whose highest score
    is below that of all but a twentieth of the held-out ones belongs to none of the tasks.

    Args:
        inputs: numbers in one sample.
        features: random features of the regression.
        seed: of those.

    >>> recogniser = Recogniser(2, features=64)
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> recogniser.add(x, torch.tensor([0, 1]), rows=2)
    >>> recogniser.rows(x).argmax(1)
    tensor([0, 1])
    """

    def __init__(self, inputs: int, features: int, seed: int = 0) -> None:
        self.ridge = Ridge(inputs, features, seed=seed)
        self.sharpness, self.least = 20.0, -torch.inf

    def add(self, x: Tensor, row: Tensor, rows: int) -> None:
        """Take in samples and the row (a label of a task) of each; there are `rows` by now."""
        self.ridge.add(x, row, rows)

    def calibrate(self, x: Tensor, row: Tensor) -> None:
        """Set sharpness and the threshold of what is known by held-out samples."""
        if not len(x):
            return
        scores = self.ridge.scores(x)
        tried = torch.logspace(0, 1, 60).sub(1).div(9).mul(SHARPEST).add(1)
        losses = torch.stack([F.cross_entropy(scores * s, row) for s in tried])
        self.sharpness = float(tried[losses.argmin()])
        self.least = float(scores.amax(1).quantile(1 - ACCEPTED))

    def rows(self, x: Tensor) -> Tensor:
        """p(row | x), (samples, rows)."""
        return (self.ridge.scores(x) * self.sharpness).softmax(1)

    def known(self, x: Tensor) -> Tensor:
        """Whether each sample belongs to any of the tasks."""
        return self.ridge.scores(x).amax(1) >= self.least

    def contexts(self, x: Tensor, contexts: Sequence[Sequence[int]]) -> Tensor:
        """p(context | x), (samples, contexts), of contexts that have some rows each."""
        rows = self.rows(x)
        return torch.stack([rows[:, list(own)].sum(1) for own in contexts], 1)

    def state(self) -> dict[str, Any]:
        """The sums and thresholds."""
        return {"ridge": self.ridge.state_dict(), "sharpness": self.sharpness, "least": self.least}

    def take(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
        self.ridge.load_state_dict(state["ridge"])
        self.sharpness, self.least = float(state["sharpness"]), float(state["least"])
