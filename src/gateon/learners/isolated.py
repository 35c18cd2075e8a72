"""Isolated networks: a new one for every context, what continual learning is measured against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..anatomy.contextual import as_context
from ..methods.base import Outline
from ..storage.states import ANYTHING, COUNT, Inputs, Rule, check, check_fits
from .learner import Learner, Observation

__all__ = ["Isolated"]


class Isolated:
    """Starts a new network whenever the context changes, and keeps only the last one.

    Args:
        make: builds a new learner, the same every time.

    >>> from functools import partial
    >>> import torch
    >>> make = lambda: Learner(nn.Linear(4, 2), optimizer=partial(torch.optim.SGD, lr=0.1))
    >>> learner = Isolated(make)
    >>> learner.observe(torch.randn(8, 4), torch.zeros(8, dtype=torch.long), context=1).switched
    True
    """

    name = "isolated"
    replay = False
    label_at_test = True
    separate = True
    contexts = None  # they are given

    def __init__(self, make: Callable[[], Learner]) -> None:
        self._make = make
        self._learner = make()
        self.context: int | None = None
        self._coming: Outline | None = None
        self.description = self._learner.description | {"method": {"kind": "Isolated"}}

    @property
    def model(self) -> nn.Module:
        """The network of the context being learned."""
        return self._learner.model

    def expect(self, outline: Outline) -> None:
        """Announce the next task before it begins."""
        self._coming = outline
        self._learner.expect(outline)

    def switch(self, context: int) -> bool:
        """Start a new network if the context changes; return whether it does."""
        if as_context(context) == self.context:
            return False
        if self.context is not None:  # before the first switch the network is new
            self._renew()
        self.context = context
        self._learner.switch(context)
        return True

    def observe(self, x: Any, y: Tensor, context: int | None = None) -> Observation:
        """Learn one batch; without a context, in that of the previous batch."""
        switched = context is not None and self.switch(context)
        seen = self._learner.observe(x, y, self.context)
        return Observation(seen.loss, seen.context, switched)

    def predict(self, x: Any, context: int | None = None) -> Tensor:
        """Outputs of the network being learned; the others are gone."""
        if context not in (None, self.context):
            raise ValueError(
                f"The network of context {context} is gone: only that of the last context, "
                f"{self.context}, is kept."
            )
        return self._learner.predict(x)

    def end_task(self, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Do nothing: the next task has a network of its own."""

    def state_dict(self) -> dict[str, Any]:
        """The state of the last network."""
        return {"context": self.context, "learner": self._learner.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> None:
        """Resume exactly where the state was taken; change nothing if it does not fit."""
        check_fits(state, partial(self.state_like, inputs=inputs))
        if self.context is not None:
            self._renew()
        self.context = state["context"]
        self._learner.load_state_dict(state["learner"])

    def state_like(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> dict[str, Any]:
        """A template of the states that fit; see `gateon.storage.states`."""
        table = Rule(lambda value: isinstance(value, dict), "be a table")
        check(state, {"context": ANYTHING, "learner": table})
        context = state["context"]
        check(state["learner"].get("context"), context, "learner context")
        return {
            "context": None if context is None else COUNT,
            "learner": self._learner.state_like(state["learner"], inputs),
        }

    def _renew(self) -> None:
        self._learner = self._make()
        if self._coming is not None:
            self._learner.expect(self._coming)
