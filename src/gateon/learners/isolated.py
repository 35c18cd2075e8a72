"""Isolated networks: a new one for every context. What continual learning is measured against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ..methods.base import Method
from ..methods.named import InIsolation
from ..storage.states import ANYTHING, COUNT, Inputs, Rule, check, check_fits
from .learner import Learner, Observation
from .training import Outline

__all__ = ["Isolated"]


class Isolated:
    """Learns like `Learner`, but begins with a new network whenever the context changes, and keeps only the last one.

    Args:
        make: makes a learner from nothing, the same every time.

    >>> from functools import partial
    >>> import torch
    >>> make = lambda: Learner(nn.Linear(4, 2), optimizer=partial(torch.optim.SGD, lr=0.1))
    >>> learner = Isolated(make)
    >>> learner.observe(torch.randn(8, 4), torch.zeros(8, dtype=torch.long), context=1).switched
    True
    """

    separate = True
    contexts = None  # they are given

    def __init__(self, make: Callable[[], Learner]) -> None:
        self.method: Method = InIsolation()
        self._make = make
        self._learner = make()
        self.context: int | None = None
        self._coming: Outline | None = None
        self.description = self._learner.description | {"method": "Isolated()"}

    @property
    def model(self) -> nn.Module:
        """The network of the context being learned."""
        return self._learner.model

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer of that network."""
        return self._learner.optimizer

    def expect(self, outline: Outline) -> None:
        """Be told of the task that comes."""
        self._coming = outline
        self._learner.expect(outline)

    def observe(self, x: Any, y: Tensor, context: int | None = None) -> Observation:
        """Learn one batch; without a context, in that of the batch before."""
        if context is not None and context != self.context:
            self._learner, self.context = self._make(), context
            if self._coming is not None:
                self._learner.expect(self._coming)
        return self._learner.observe(x, y, self.context)

    def predict(self, x: Any, context: int | None = None) -> Tensor:
        """Outputs of the network being learned; the others are gone."""
        if context not in (None, self.context):
            raise ValueError(
                f"The network of context {context} is gone: only that of the last context, {self.context}, is kept."
            )
        return self._learner.predict(x)

    def end_task(self, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Nothing to look back for."""

    def state_dict(self) -> dict[str, Any]:
        """The state of the last network."""
        return {"context": self.context, "learner": self._learner.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> None:
        """Go on with it; nothing changes if it does not fit."""
        check_fits(state, partial(self.state_like, inputs=inputs))
        self.context = state["context"]
        self._learner = self._make()
        self._learner.load_state_dict(state["learner"])

    def state_like(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> dict[str, Any]:
        """The template of a state that fits; see `gateon.storage.states`."""
        check(
            state,
            {
                "context": ANYTHING,
                "learner": Rule(lambda value: isinstance(value, dict), "be a table"),
            },
        )
        context = state["context"]
        check(state["learner"].get("context"), context, "learner context")
        return {
            "context": None if context is None else COUNT,
            "learner": self._learner.state_like(state["learner"], inputs),
        }
