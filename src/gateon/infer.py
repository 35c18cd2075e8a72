"""Inferring contexts inside a learner: from the loss while it learns, from the entropy of its outputs when it only predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from .detector import ContextDetector

__all__ = ["Inference", "Observation", "Recognition", "recognised"]

PROBED = 256  # samples are enough to tell which context they belong to


@dataclass(frozen=True)
class Observation:
    """What one batch showed: its loss, the context it was learned in, and whether that is another one than before."""

    loss: float
    context: int
    switched: bool


@dataclass(frozen=True)
class Recognition:
    """Contexts found for unlabelled inputs, one for all or one a sample, and how sure that is, from 0 to 1."""

    context: Tensor
    certainty: Tensor


class Learning(Protocol):
    """What inference asks of a learner."""

    context: int | None
    loss: Callable[[Tensor, Tensor], Tensor]

    def forward(self, x: Any, y: Tensor) -> tuple[Tensor, float, Callable[[], None]]:
        """The loss of a batch, its value, and the way to undo what the forward pass moved."""

    def step(self, loss: Tensor, value: float, restore: Callable[[], None]) -> float:
        """Learn from that loss; its value."""

    def switch(self, context: int) -> bool:
        """Learn another context from now on; whether it is another one."""

    def remember(self) -> Callable[[], None]:
        """The way back to this moment."""

    def outputs_under(self, x: Any, contexts: Sequence[int]) -> Iterator[Tensor]:
        """Outputs for x in each of several contexts."""


@dataclass
class _Doubt:
    """Batches that may be of another task, and the way back to the moment before the first of them was learned."""

    go_back: Callable[[], None]
    batches: list[tuple[Any, Tensor]]


class Inference:
    """Finds the context of every batch that a learner observes.

    While batches are in doubt they are learned in the context at hand. If it turns out that another task has begun, network,
    optimizer and availabilities go back to the moment before the first of them, and the batches are learned in the right context: where
    every switch is found, the result is that of known contexts to the bit.
    """

    def __init__(self, detector: ContextDetector) -> None:
        self.detector = detector
        self.doubt: _Doubt | None = None

    def observe(self, learner: Learning, x: Any, y: Tensor) -> Observation:
        """Find the context of a batch and learn it there."""
        detector = self.detector
        begun = learner.context is None and learner.switch(detector.active)
        generator = torch.get_rng_state()
        loss, value, restore = learner.forward(x, y)
        if not detector.suspects(value):
            detector.update(value)
            self.doubt = None
            return Observation(learner.step(loss, value, restore), detector.active, begun)
        restore()
        torch.set_rng_state(generator)
        if self.doubt is None or not detector.robust:  # Algorithm 1 undoes nothing but the batch at hand
            self.doubt = _Doubt(self._remember(learner), [])
        self.doubt.batches.append((x, y))
        verdict = detector.update(value, lambda contexts: self._probe(learner, contexts))
        if verdict.switched:
            return self._turn(learner, verdict.context)
        if verdict.dismissed or not detector.robust:
            self.doubt = None
        return Observation(learner.step(*learner.forward(x, y)), detector.active, False)

    def before_doubt(self, learner: Learning, state: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The state of the learner before the doubt, if there is one, with the batches in it: `resume` leads from there to now."""
        if self.doubt is None:
            return state() | {"contexts": self.detector.state_dict()}
        now = self._remember(learner)
        self.doubt.go_back()
        trusted = state() | {"contexts": self.detector.state_dict(), "doubted": [list(batch) for batch in self.doubt.batches]}
        now()
        return trusted

    def resume(self, learner: Learning, state: dict[str, Any]) -> None:
        """Go on where `before_doubt` was asked for, the learner having been put there."""
        self.detector.load_state_dict(state["contexts"])
        self.doubt = None
        for x, y in state.get("doubted", []):
            self.observe(learner, x, y)

    def _turn(self, learner: Learning, context: int) -> Observation:
        assert self.doubt is not None
        doubt, found = self.doubt, self.detector.state_dict()
        doubt.go_back()
        self.detector.load_state_dict(found)
        self.doubt = None
        learner.switch(context)
        seen = [self.observe(learner, x, y) for x, y in doubt.batches]
        return Observation(seen[-1].loss, seen[-1].context, True)

    def _probe(self, learner: Learning, contexts: Sequence[int]) -> list[float]:
        """The losses of the batches in doubt under contexts, in the state before the doubt."""
        assert self.doubt is not None
        now, batches = self._remember(learner), self.doubt.batches
        self.doubt.go_back()
        x, y = batches[-1]
        if isinstance(x, Tensor):
            x, y = torch.cat([x for x, _ in batches])[-PROBED:], torch.cat([y for _, y in batches])[-PROBED:]
        losses = [learner.loss(outputs, y).item() for outputs in learner.outputs_under(x, contexts)]
        now()
        return losses

    def _remember(self, learner: Learning) -> Callable[[], None]:
        go_back, known = learner.remember(), self.detector.state_dict()

        def back() -> None:
            go_back()
            self.detector.load_state_dict(known)

        return back


def recognised(outputs: Sequence[Tensor], *, each: bool) -> Recognition:
    """The context under which outputs (logits) have the lowest entropy: a network is sure of what it knows.

    Certainty is 1 - H / H', with H the lowest entropy and H' the second lowest.

    Args:
        outputs: for the same inputs, (samples, classes) in each context.
        each: of each sample by itself, or of all together.

    >>> sure, unsure = torch.tensor([[9.0, 0.0]]), torch.tensor([[0.1, 0.0]])
    >>> recognised([unsure, sure], each=False)
    Recognition(context=tensor(1), certainty=tensor(0.9982))
    """
    log_p = torch.stack([output.float().log_softmax(1) for output in outputs])
    entropy = -(log_p.exp() * log_p).sum(2)
    if not each:
        entropy = entropy.mean(1)
    if len(outputs) == 1:
        return Recognition(torch.zeros_like(entropy[0], dtype=torch.long), torch.ones_like(entropy[0]))
    lowest, order = entropy.sort(0)
    return Recognition(order[0], 1 - lowest[0] / lowest[1].clamp_min(torch.finfo(torch.float32).tiny))
