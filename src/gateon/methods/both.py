"""Two methods at once, such as XdG with SI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ..storage.states import Grown
from .base import Adopt, Method

__all__ = ["Both"]


class Both(Method):
    """Calls the first method, then the second, at each of the four calls.

    Args:
        first: prepares the model before the other does.
        second: sees the model as the first has made it.

    >>> from .finetune import Finetune
    >>> from .xdg import XdG
    >>> Both(XdG(), Finetune()).name
    'xdg+finetune'
    """

    def __init__(self, first: Method, second: Method) -> None:
        self.first, self.second = first, second
        self.name = f"{first.name}+{second.name}"
        self.replay = first.replay or second.replay
        self.label_at_test = first.label_at_test or second.label_at_test

    @property
    def served(self) -> object:
        """The learner that has both of them, if one has."""
        return self.first.served if self.first.served is self.second.served else None

    @served.setter
    def served(self, learner: object) -> None:
        self.first.served = self.second.served = learner

    @property
    def needs_ends(self) -> bool:
        """Whether one of them must be told where a task ends."""
        return self.first.needs_ends or self.second.needs_ends

    def __repr__(self) -> str:
        """The methods it is made of."""
        return f"Both({self.first!r}, {self.second!r})"

    def prepare(self, model: nn.Module) -> Adopt:
        """Both prepare; every optimizer goes to both."""
        prepared = [method.prepare(model) for method in (self.first, self.second)]

        def adopt(optimizer: Optimizer) -> None:
            for each in prepared:
                if each is not None:
                    each(optimizer)

        return adopt

    def penalty(self, model: nn.Module) -> Tensor | None:
        """The sum."""
        first, second = self.first.penalty(model), self.second.penalty(model)
        return (
            first + second
            if first is not None and second is not None
            else first
            if second is None
            else second
        )

    def stepped(self, model: nn.Module, optimizer: Optimizer) -> None:
        """One after the other."""
        self.first.stepped(model, optimizer)
        self.second.stepped(model, optimizer)

    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Both see the same batches."""
        batches = list(data)
        self.first.end_task(model, task, batches)
        self.second.end_task(model, task, batches)

    def state_dict(self) -> dict[str, Any]:
        """Both states."""
        return {"first": self.first.state_dict(), "second": self.second.state_dict()}

    def state_like(self, state: Any, model: Grown) -> Any:
        """Both."""
        return {
            "first": self.first.state_like(state["first"], model),
            "second": self.second.state_like(state["second"], model),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over both."""
        self.first.load_state_dict(state["first"])
        self.second.load_state_dict(state["second"])
