"""Updates scaled entry by entry: what a mask over parameters does to an optimizer's step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from ...storage.states import COUNT, Grown
from ..base import Method

__all__ = ["Scaled", "scale_updates"]


@dataclass
class Scaled(Method):
    """A method that scales updates by factors which change only when a task is over.

    Masks and maps are in the model, so its state is the number of tasks.
    """

    tasks: int = field(default=0, init=False, repr=False, compare=False)  # that are over
    # since the last task
    _factors: dict[nn.Parameter, Tensor] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def begin(self) -> None:
        """No task is over yet."""
        self.tasks, self._factors = 0, {}

    def task_over(self) -> None:
        """One more is: factors are derived anew."""
        self.tasks += 1
        self._factors.clear()

    def factors(self) -> dict[nn.Parameter, Tensor]:
        """What updates are scaled by; empty before the first task is over."""
        if self.tasks and not self._factors:
            self._factors = self.derived()
        return self._factors

    @abstractmethod
    def derived(self) -> dict[nn.Parameter, Tensor]:
        """The factors, from masks or maps as they are now."""

    def state_dict(self) -> dict[str, Any]:
        """How many tasks are over."""
        return {"tasks": self.tasks}

    def state_like(self, state: Any, model: Grown) -> Any:
        """A count."""
        return {"tasks": COUNT}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take it over; factors are derived anew."""
        self.tasks = state["tasks"]
        self._factors.clear()


def scale_updates(
    optimizer: Optimizer, factors: Callable[[], Mapping[nn.Parameter, Tensor]]
) -> None:
    """Scale every update of the parameters in `factors()` by its factors in [0, 1].

    It is called before each step. Plain SGD has its gradients scaled. Any other optimizer would
    undo that (Adam) or move a weight without a gradient (momentum, decay): there theta <-
    lerp(theta before, theta after the step, factor). Either way 0 is bit-frozen and 1 is as without
    this.

    >>> weight = nn.Parameter(torch.ones(2))
    >>> optimizer = torch.optim.Adam([weight], lr=0.5)
    >>> scale_updates(optimizer, lambda: {weight: torch.tensor([0.0, 1.0])})
    >>> weight.sum().backward(); optimizer.step(); weight.detach()
    tensor([1.0000, 0.5000])
    """
    if _is_plain_sgd(optimizer):

        def scale_gradients(*_: Any) -> None:
            for parameter, factor in factors().items():
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

        optimizer.register_step_pre_hook(scale_gradients)
        return

    before: dict[
        nn.Parameter, Tensor
    ] = {}  # kept from step to step: asking for memory costs more than copying
    now: dict[nn.Parameter, Tensor] = {}

    def remember(*_: Any) -> None:
        now.clear()
        now.update(
            (parameter, factor)
            for parameter, factor in factors().items()
            if parameter.grad is not None
        )
        for parameter in now:
            before.setdefault(parameter, torch.empty_like(parameter)).copy_(parameter.detach())

    @torch.no_grad()
    def scale(*_: Any) -> None:
        for parameter, factor in now.items():
            torch.lerp(before[parameter], parameter, factor, out=parameter)

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(scale)


def _is_plain_sgd(optimizer: Optimizer) -> bool:
    return type(optimizer) is SGD and not any(
        group["momentum"] or group["weight_decay"] for group in optimizer.param_groups
    )
