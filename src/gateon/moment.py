"""A moment of learning that can be gone back to: network, optimizer, schedule, availabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Protocol

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

__all__ = ["remember"]


class Stateful(Protocol):
    """Whatever has a state: a method, or the availabilities of a sub-network."""

    def state_dict(self) -> Mapping[str, Any]:
        """What it holds."""

    def load_state_dict(self, state: Any) -> Any:
        """Take it over."""


def remember(network: nn.Module, optimizer: Optimizer, schedule: LRScheduler | None, others: list[Stateful]) -> Callable[[], None]:
    """Copy the state of all of them; the result puts it back, as often as it is called.

    >>> import torch
    >>> network = nn.Linear(1, 1)
    >>> optimizer, before = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9), network.weight.item()
    >>> go_back = remember(network, optimizer, None, [])
    >>> network(torch.ones(1, 1)).sum().backward(); optimizer.step()
    >>> go_back()
    >>> network.weight.item() == before, len(optimizer.state)
    (True, 0)
    """
    owners: list[Stateful] = [network, optimizer, *([] if schedule is None else [schedule]), *others]
    states = [deepcopy(owner.state_dict()) for owner in owners]

    def go_back() -> None:
        for owner, state in zip(owners, states, strict=True):
            owner.load_state_dict(deepcopy(state))

    return go_back
