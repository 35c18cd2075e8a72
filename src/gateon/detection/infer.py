"""Inferring contexts inside a learner: from losses while learning, from entropy when predicting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..storage.states import COUNT, NUMBER, Grown, Whole, batch_like
from .detector import ContextDetector
from .losses import LossBook

__all__ = ["Inference", "Observation", "Recognition", "recognised"]

TINY = torch.finfo(torch.float32).tiny
PROBED = 256  # samples, enough to tell which context they belong to


@dataclass(frozen=True)
class Observation:
    """What a learner observed in one batch.

    Args:
        loss: The loss, without a method's penalty.
        context: The context of the batch.
        switched: Whether that differs from the previous context.
        suspected: Whether the batch waits, because it may belong to another context.
    """

    loss: float
    context: int
    switched: bool
    suspected: bool = False


@dataclass(frozen=True)
class Recognition:
    """Contexts recognised for unlabelled inputs.

    Args:
        context: One for all samples, or one per sample.
        certainty: How certain it is, from 0 to 1.
    """

    context: Tensor
    certainty: Tensor


class Learning(Protocol):
    """What inference needs from a learner."""

    loss: Callable[[Tensor, Tensor], Tensor]

    @property
    def context(self) -> int | None:
        """The one being learned; None before the first."""

    def forward(self, x: Any, y: Tensor) -> tuple[Tensor, float, Callable[[], None]]:
        """The loss of a batch, its value, and a function that undoes the forward pass."""

    def step(self, loss: Tensor, value: float, restore: Callable[[], None]) -> float:
        """Learn from that loss; return its value."""

    def switch(self, context: int) -> bool:
        """Learn in that context from now on; return whether it differs from the previous one."""

    def outputs_under(self, x: Any, contexts: Sequence[int]) -> Iterator[Tensor]:
        """Outputs for x in each of several contexts."""


Batch = tuple[Any, Tensor]


class Inference:
    """Finds the context of every batch that a learner observes.

    Suspect batches wait until their context is settled, and are then learned in order, in the
    active context or in another. So nothing is learned in the wrong context, and if every switch is
    found, the result equals that of known contexts bit for bit. At the end of a stream up to
    window - 1 batches may still be waiting.

    Args:
        detector: Decides from losses.
    """

    def __init__(self, detector: ContextDetector) -> None:
        self.detector = detector
        self.doubted: list[Batch] = []
        self.familiar: Batch | None = None  # samples of the last batch that was not suspect

    def observe(self, learner: Learning, x: Any, y: Tensor) -> Observation:
        """Find the context of a batch, and learn it there once that is settled."""
        detector, batches = self.detector, [*self.doubted, (x, y)]
        begun = learner.context is None and learner.switch(detector.active)
        loss, value, restore = learner.forward(x, y)
        if not self.doubted and not detector.suspects(value):
            learner.step(loss, value, restore)  # first, because it may fail
            detector.update(value)
            self.familiar = _copied(_last_of([(x, y)]))
            return Observation(value, detector.active, begun)
        restore()
        del loss  # its graph would prevent the gates from growing
        verdict = detector.update(
            value,
            lambda contexts: self._losses(learner, _last_of(batches), contexts),
            self._now(learner),
        )
        self.doubted = [*self.doubted, _copied((x, y))] if verdict.suspected else []
        if verdict.suspected:
            return Observation(value, detector.active, False, suspected=True)
        if not verdict.switched:
            values = [learner.step(*learner.forward(*batch)) for batch in batches]
            return Observation(values[-1], detector.active, False)
        learner.switch(verdict.context)
        for batch in batches:
            value = learner.step(*learner.forward(*batch))
            detector.settled(value)
        self.familiar = _copied(_last_of(batches[-1:]))
        return Observation(value, verdict.context, True)

    def state_dict(self) -> dict[str, Any]:
        """What the detector knows, and the batches needed to continue."""
        familiar = None if self.familiar is None else list(self.familiar)
        return {
            "detector": self.detector.state_dict(),
            "doubted": [list(batch) for batch in self.doubted],
            "familiar": familiar,
        }

    def state_like(self, state: Any, model: Grown) -> dict[str, Any]:
        """The template of a state; see `gateon.storage.states`."""
        detector = state["detector"]
        book = dict.fromkeys(asdict(LossBook()), NUMBER) | {"losses": COUNT}
        books = [book for _ in detector["books"]]
        if not 0 < len(books) <= model.context.high + 1:
            raise ValueError("the detector must have 1 context or more, but no more than the model")
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
        """Restore what `state_dict` returned."""
        self.detector.load_state_dict(state["detector"])
        self.doubted = [(x, y) for x, y in state["doubted"]]
        familiar = state["familiar"]
        self.familiar = None if familiar is None else (familiar[0], familiar[1])

    def _now(self, learner: Learning) -> Callable[[], float] | None:
        """A function that returns the current loss of the last batch that was not suspect."""
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
    """The last samples of several batches, or of the last one if inputs cannot be joined."""
    x, y = batches[-1]
    if not isinstance(x, Tensor):
        return {name: value[-PROBED:] for name, value in x.items()}, y[-PROBED:]
    if len(x) < PROBED and all(other.shape[1:] == x.shape[1:] for other, _ in batches):
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    return x[-PROBED:], y[-PROBED:]


def _copied(batch: Batch) -> Batch:
    """A copy of the batch: the caller may reuse its tensors for the next one."""
    x, y = batch
    if isinstance(x, Tensor):
        return x.clone(), y.clone()
    return {name: value.clone() for name, value in x.items()}, y.clone()


def recognised(outputs: Sequence[Tensor], *, each: bool) -> Recognition:
    """Recognise the context in which a network's outputs are most informative.

    A network is sure of what it knows, and says much the same about all unfamiliar inputs. For all
    samples together it is the context with the highest mutual information of sample and label,
    I = H(mean p) - mean H(p), with certainty 1 - I' / I where I' is the second highest. For each
    sample alone it is the context with the lowest entropy H, with certainty 1 - H / H'.

    Args:
        outputs: Logits for the same inputs in each context, (samples, classes).
        each: Whether to recognise each sample alone, or all together.

    >>> sure = torch.tensor([[9.0, 0.0], [0.0, 9.0]])
    >>> unsure = torch.tensor([[0.1, 0.0], [0.0, 0.1]])
    >>> recognised([unsure, sure], each=False)
    Recognition(context=tensor(1), certainty=tensor(0.9982))
    """
    if not len(outputs[0]):
        raise ValueError("There are no inputs to recognise a context by: pass at least one sample.")
    log_p = torch.stack([output.float().log_softmax(1) for output in outputs])
    entropy = _entropy(log_p)  # (contexts, samples)
    second = min(1, len(outputs) - 1)
    if each or entropy.shape[1] == 1:
        lowest, order = entropy.sort(0)
        found, certainty = order[0], 1 - lowest[0] / lowest[second].clamp_min(TINY)
        found, certainty = (found, certainty) if each else (found[0], certainty[0])
    else:
        mean = log_p.exp().mean(1).clamp_min(TINY).log()
        highest, order = (_entropy(mean) - entropy.mean(1)).sort(0, descending=True)
        ratio = highest[second] / highest[0].clamp_min(TINY)
        found, certainty = order[0], 1 - ratio.clamp_min(0)
    return Recognition(found, torch.ones_like(certainty) if len(outputs) == 1 else certainty)


def _entropy(log_p: Tensor) -> Tensor:
    return -(log_p.exp() * log_p).sum(-1)
