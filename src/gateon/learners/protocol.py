"""The learner protocol: what a run needs from anything that learns a stream of batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from torch import Tensor, nn
from torch.optim import Optimizer

from ..detection.detector import ContextDetector
from ..detection.infer import Observation
from ..methods.base import Outline
from ..storage.states import Inputs
from .description import settings_of

__all__ = ["AnyLearner", "check_finite", "described"]


class AnyLearner(Protocol):
    """Learns batches in contexts, predicts in any of them, and goes on from its state."""

    @property
    def name(self) -> str:
        """Its name in records."""

    @property
    def replay(self) -> bool:
        """Whether it learns samples of past tasks again."""

    @property
    def label_at_test(self) -> bool:
        """Whether it must be told the task to predict."""

    @property
    def separate(self) -> bool:
        """Whether contexts have networks of their own, so that none can change another."""

    @property
    def contexts(self) -> ContextDetector | None:
        """What infers contexts; None if `observe` is told them."""

    @property
    def description(self) -> Mapping[str, Any]:
        """What it is made of, as JSON-able settings."""

    @property
    def model(self) -> nn.Module:
        """The network, with everything learned so far."""

    def expect(self, outline: Outline) -> None:
        """Announce the next task before it begins."""

    def switch(self, context: int) -> bool:
        """Switch to a context; return whether it differs from the current one."""

    def observe(self, x: Any, y: Tensor, context: int | None = None) -> Observation:
        """Learn one batch. If its loss is not finite: FloatingPointError, and nothing changes."""

    def predict(self, x: Any, context: int | None = None) -> Tensor:
        """Outputs for x in a context, by default the one being learned."""

    def end_task(self, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Announce the end of a task, with its batches."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume learning."""

    def load_state_dict(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> None:
        """Resume exactly where the state was taken; change nothing if it does not fit."""


def check_finite(loss: float, step: int, context: int | None, restore: Callable[[], None]) -> None:
    """Raise FloatingPointError for a loss that is not finite, after undoing the forward pass."""
    if not math.isfinite(loss):
        restore()
        raise FloatingPointError(
            f"The loss is {loss} at step {step} in context {context}; nothing was learned from "
            "that batch. Lower the learning rate, or look for such values in the data."
        )


def described(
    model: Any,
    method: Any,
    schedule: Any,
    loss: Any,
    optimizer: Optimizer,
    others: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a learner is made of, as JSON-able settings; see `gateon.learners.description`.

    Args:
        model: its network, or its settings.
        method: what prevents forgetting, or its settings.
        schedule: of the learning rate.
        loss: a function of outputs and labels.
        optimizer: as it is built.
        others: anything else that decides how it learns.
    """
    parts = {"model": model, "method": method, "schedule": schedule, "loss": loss}
    parts |= {"precision": "float32", **(others or {}), "optimizer": optimizer}
    return {name: settings_of(part) for name, part in parts.items()}
