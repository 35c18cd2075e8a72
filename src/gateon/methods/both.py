"""Two methods at once, such as XdG with SI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ..storage.states import Grown
from ..subnetwork.part import Cut, Keeper
from .base import Adopt, Batch, Method, Narrowed, Outline

__all__ = ["Both"]


@dataclass
class Both(Method):
    """Makes every call to the first method, then to the second.

    Args:
        first: prepares the model before the other does.
        second: sees the model as the first has made it.

    >>> from .finetune import Finetune
    >>> from .xdg import XdG
    >>> Both(XdG(), Finetune()).name
    'xdg+finetune'
    """

    first: Method
    second: Method

    def __post_init__(self) -> None:
        """Combine the names and needs of both."""
        self.name = f"{self.first.name}+{self.second.name}"
        self.replay = self.first.replay or self.second.replay
        self.label_at_test = self.first.label_at_test or self.second.label_at_test
        self.whole_batch = self.first.whole_batch or self.second.whole_batch

    @property
    def served(self) -> object:
        """The learner that both serve, if there is one."""
        return self.first.served if self.first.served is self.second.served else None

    @served.setter
    def served(self, learner: object) -> None:
        self.first.served = self.second.served = learner

    @property
    def needs_ends(self) -> bool:
        """Whether one of them must be told when a task ends."""
        return self.first.needs_ends or self.second.needs_ends

    def expect(self, outline: Outline) -> None:
        """Tell both."""
        self.first.expect(outline)
        self.second.expect(outline)

    def prepare(self, model: nn.Module) -> Adopt:
        """Let both prepare; every optimizer goes to both."""
        prepared = [method.prepare(model) for method in (self.first, self.second)]

        def adopt(optimizer: Optimizer) -> None:
            for each in prepared:
                if each is not None:
                    each(optimizer)

        return adopt

    def penalty(self, model: nn.Module, batch: Batch) -> Tensor | None:
        """The sum of both."""
        return _sum(self.first.penalty(model, batch), self.second.penalty(model, batch))

    def stepped(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Call one after the other."""
        self.first.stepped(model, optimizer)
        self.second.stepped(model, optimizer)

    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Show both the same batches."""
        batches = list(data)
        self.first.end_task(model, task, batches)
        self.second.end_task(model, task, batches)

    def narrowed(self) -> Narrowed | None:
        """Both in a sub-network, if both can work there."""
        first, second = self.first.narrowed(), self.second.narrowed()
        if first is None or second is None:
            return None
        keepers = [part.keeper for part in (first, second) if part.keeper is not None]
        return Narrowed(Both(first.method, second.method), _Keepers(keepers))

    def state_dict(self) -> dict[str, Any]:
        """Both states."""
        return {"first": self.first.state_dict(), "second": self.second.state_dict()}

    def state_like(self, state: Any, model: Grown) -> Any:
        """Templates of both."""
        return {
            "first": self.first.state_like(state["first"], model),
            "second": self.second.state_like(state["second"], model),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over both."""
        self.first.load_state_dict(state["first"])
        self.second.load_state_dict(state["second"])


class _Keepers:
    """Those of both methods, one after the other."""

    def __init__(self, keepers: list[Keeper]) -> None:
        self.keepers = keepers

    def take(self, cut: Cut, network: nn.Module) -> None:
        for keeper in self.keepers:
            keeper.take(cut, network)

    def follow(self, optimizer: Optimizer) -> None:
        for keeper in self.keepers:
            keeper.follow(optimizer)

    def renew(self) -> None:
        for keeper in self.keepers:
            keeper.renew()

    def put_back(self) -> None:
        for keeper in self.keepers:
            keeper.put_back()


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second
