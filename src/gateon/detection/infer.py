"""Inferring contexts inside a learner: from the loss while it learns, from the entropy of its outputs when it only predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..storage.states import COUNT, NUMBER, Grown, Whole, batch_like
from .detector import ContextDetector, _Book

__all__ = ["Inference", "Observation", "Recognition", "recognised"]

TINY = torch.finfo(torch.float32).tiny
PROBED = 256  # samples are enough to tell which context they belong to


@dataclass(frozen=True)
class Observation:
    """What one batch showed: its loss (without a method's penalty), the context, and whether that is another one than before."""

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

    def outputs_under(self, x: Any, contexts: Sequence[int]) -> Iterator[Tensor]:
        """Outputs for x in each of several contexts."""


Batch = tuple[Any, Tensor]


class Inference:
    """Finds the context of every batch that a learner observes.

    A batch in doubt is not learned before it is sure where it belongs: then those in doubt are
    learned in order, in the context at hand or in another. So nothing is ever learned in the wrong
    context, and where every switch is found, the result is that of known contexts to the bit. At
    the end of a stream up to window - 1 batches may be left in doubt.
    """

    def __init__(self, detector: ContextDetector) -> None:
        self.detector = detector
        self.doubted: list[Batch] = []
        self.familiar: Batch | None = None  # of the last batch that was not in doubt

    def observe(self, learner: Learning, x: Any, y: Tensor) -> Observation:
        """Find the context of a batch and learn it there, if it is clear."""
        detector, batches = self.detector, [*self.doubted, (x, y)]
        begun = learner.context is None and learner.switch(detector.active)
        loss, value, restore = learner.forward(x, y)
        if not self.doubted and not detector.suspects(value):
            # which may fail: the detector must not know of the batch then
            learner.step(loss, value, restore)
            detector.update(value)
            self.familiar = _copied(_last_of([(x, y)]))
            return Observation(value, detector.active, begun)
        restore()
        del loss  # its graph would hold the gates to their number of contexts
        verdict = detector.update(
            value,
            lambda contexts: self._losses(learner, _last_of(batches), contexts),
            self._now(learner),
        )
        self.doubted = [*self.doubted, _copied((x, y))] if verdict.suspected else []
        if verdict.suspected:
            return Observation(value, detector.active, False)
        if not verdict.switched:
            return Observation(
                [learner.step(*learner.forward(*batch)) for batch in batches][-1],
                detector.active,
                False,
            )
        learner.switch(verdict.context)
        for batch in batches:
            value = learner.step(*learner.forward(*batch))
            detector.settled(value)
        self.familiar = _copied(_last_of(batches[-1:]))
        return Observation(value, verdict.context, True)

    def state_dict(self) -> dict[str, Any]:
        """What the detector knows, and the batches it needs to go on."""
        familiar = None if self.familiar is None else list(self.familiar)
        return {
            "detector": self.detector.state_dict(),
            "doubted": [list(batch) for batch in self.doubted],
            "familiar": familiar,
        }

    def state_like(self, state: Any, model: Grown) -> dict[str, Any]:
        """What the detector knows of each context, and batches."""
        detector = state["detector"]
        books = [
            dict.fromkeys(asdict(_Book()), NUMBER) | {"losses": COUNT} for _ in detector["books"]
        ]
        if not 0 < len(books) <= model.context.high + 1:
            raise ValueError("the detector must have a context, and no more than the model has")
        known = {
            "active": Whole(0, len(books) - 1),
            "books": books,
            "suspects": [NUMBER for _ in detector["suspects"]],
            "running": NUMBER,
            "figures": dict.fromkeys(self.detector.figures, COUNT),
        }
        doubted = [batch_like(x, y, model.inputs) for x, y in state["doubted"]]
        familiar = state["familiar"]
        last = None if familiar is None else batch_like(familiar[0], familiar[1], model.inputs)
        return {"detector": known, "doubted": doubted, "familiar": last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.detector.load_state_dict(state["detector"])
        self.doubted = [(x, y) for x, y in state["doubted"]]
        self.familiar = (
            None if state["familiar"] is None else (state["familiar"][0], state["familiar"][1])
        )

    def _now(self, learner: Learning) -> Callable[[], float] | None:
        """Gives the loss that the last batch before the doubt has now."""
        familiar, active = self.familiar, self.detector.active
        return None if familiar is None else lambda: self._losses(learner, familiar, [active])[0]

    @staticmethod
    def _losses(learner: Learning, batch: Batch, contexts: Sequence[int]) -> list[float]:
        x, y = batch
        return [
            learner.loss(outputs, y.to(outputs.device)).item()
            for outputs in learner.outputs_under(x, contexts)
        ]


def _last_of(batches: list[Batch]) -> Batch:
    """The last samples of some batches, as many as are probed; of the last batch where inputs cannot be joined."""
    x, y = batches[-1]
    if not isinstance(x, Tensor):
        return {name: value[-PROBED:] for name, value in x.items()}, y[-PROBED:]
    if len(x) < PROBED and all(other.shape[1:] == x.shape[1:] for other, _ in batches):
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    return x[-PROBED:], y[-PROBED:]


def _copied(batch: Batch) -> Batch:
    """The batch in memory of its own: the caller may fill its tensors with the next one."""
    x, y = batch
    copied = (
        x.clone() if isinstance(x, Tensor) else {name: value.clone() for name, value in x.items()}
    )
    return copied, y.clone()


def recognised(outputs: Sequence[Tensor], *, each: bool) -> Recognition:
    """The context under which outputs (logits) tell most: a network is sure of what it knows, and says the same of all strangers.

    Of all together, it is the context in which sample and label have most in common, I = H(mean p)
    - mean H(p), and certainty is 1 - I' / I with I' the second highest. Of each sample by itself,
    it is the one with the lowest entropy H, and certainty is 1 - H / H'.

    Args:
        outputs: for the same inputs, (samples, classes) in each context.
        each: of each sample by itself, or of all together.

    >>> sure, unsure = torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([[0.1, 0.0], [0.0, 0.1]])
    >>> recognised([unsure, sure], each=False)
    Recognition(context=tensor(1), certainty=tensor(0.9982))
    """
    if not len(outputs[0]):
        raise ValueError("There are no inputs to recognise a context by: give at least one sample.")
    # (contexts, samples, classes)
    log_p = torch.stack([output.float().log_softmax(1) for output in outputs])
    entropy = _entropy(log_p)
    if each or entropy.shape[1] == 1:
        lowest, order = entropy.sort(0)
        found, certainty = order[0], 1 - lowest[0] / lowest[min(1, len(lowest) - 1)].clamp_min(TINY)
        found, certainty = (found, certainty) if each else (found[0], certainty[0])
    else:
        mean = log_p.exp().mean(1).clamp_min(TINY).log()
        highest, order = (_entropy(mean) - entropy.mean(1)).sort(0, descending=True)
        found, certainty = (
            order[0],
            1 - (highest[min(1, len(highest) - 1)] / highest[0].clamp_min(TINY)).clamp_min(0),
        )
    return Recognition(found, torch.ones_like(certainty) if len(outputs) == 1 else certainty)


def _entropy(log_p: Tensor) -> Tensor:
    return -(log_p.exp() * log_p).sum(-1)
