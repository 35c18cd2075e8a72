"""One output layer per task, on top of a trunk that all tasks share."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..anatomy.contextual import Contextual

__all__ = ["TaskHeads", "with_task_heads"]


class TaskHeads(nn.Linear, Contextual):
    """A Linear with separate weights per context, which a learner switches.

    Heads of other contexts get no gradient, so that no optimizer moves them. The first is called
    `weight` and `bias`, the others `weight_1`, `bias_1` and so on.

    Args:
        inputs: The number of units of the trunk.
        classes: The number of outputs of each head.
        tasks: The number of heads to start with; more are added at a switch. Methods that look at
            the parameters of a model only once, before the first task, need all from the start.

    >>> heads = TaskHeads(4, 2, tasks=3)
    >>> heads.show(1)
    >>> heads(torch.ones(5, 4)).shape, heads.contexts
    (torch.Size([5, 2]), 3)
    """

    def __init__(self, inputs: int, classes: int, tasks: int = 1) -> None:
        if min(inputs, classes, tasks) < 1:
            raise ValueError(
                "TaskHeads needs at least one input, class and task, "
                f"got {inputs}, {classes} and {tasks}."
            )
        super().__init__(inputs, classes)
        self.context = 0
        while self.contexts < tasks:
            self.add_context()

    @property
    def contexts(self) -> int:
        """The number of heads."""
        return len(self._parameters) // 2

    def add_context(self) -> None:
        """Add a head, initialised like nn.Linear."""
        k, bound = self.contexts, 1 / math.sqrt(self.in_features)
        like = self.weight.detach()
        weight = torch.empty_like(like).uniform_(-bound, bound)
        bias = like.new_empty(self.out_features).uniform_(-bound, bound)
        self.register_parameter(f"weight_{k}", nn.Parameter(weight))
        self.register_parameter(f"bias_{k}", nn.Parameter(bias))

    def head(self, context: int) -> tuple[Tensor, Tensor]:
        """Weight and bias of one context."""
        suffix = f"_{context}" if context else ""
        # getattr, not get_parameter: inside torch.func.functional_call they are plain tensors.
        weight: Tensor = getattr(self, "weight" + suffix)
        bias: Tensor = getattr(self, "bias" + suffix)
        return weight, bias

    @property
    def active_weight(self) -> Tensor:
        """The weight of the active context's head."""
        return self.head(self.context)[0]

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of the active context's head."""
        return F.linear(x, *self.head(self.context))

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"{self.in_features}, {self.out_features}, tasks={self.contexts}"

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        while f"{prefix}weight_{self.contexts}" in state:
            self.add_context()
        super()._load_from_state_dict(state, prefix, *rest)


def with_task_heads(model: nn.Sequential, tasks: int = 1) -> nn.Sequential:
    """Replace the Linear at the end of a model by TaskHeads, in place.

    Args:
        model: The network.
        tasks: The number of heads to start with.

    Returns:
        The same model.

    >>> from .mlp import mlp
    >>> with_task_heads(mlp(4, (3,), 2, norm="none"), tasks=5)[-1]
    TaskHeads(3, 2, tasks=5)
    """
    last = model[-1] if len(model) else None
    if not isinstance(last, nn.Linear) or isinstance(last, TaskHeads):
        raise ValueError(
            f"The model must end with a Linear to get task heads, got {type(last).__name__}."
        )
    model[-1] = TaskHeads(last.in_features, last.out_features, tasks).to(last.weight)
    return model
