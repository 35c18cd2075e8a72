"""One output layer for every task, on top of a trunk that all tasks share."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..anatomy.contextual import Contextual

__all__ = ["TaskHeads", "with_task_heads"]


class TaskHeads(nn.Linear, Contextual):
    """A Linear with weights of its own for every context; a learner switches it.

    Heads of other contexts get no gradient at all, so that no optimizer moves them. The first is
    called `weight` and `bias`, the others `weight_1`, `bias_1` and so on.

    Args:
        inputs: units of the trunk.
        classes: outputs of each head.
        tasks: heads to begin with; more are added at a switch. Methods that look at the parameters
            of a model once, before the first task, need all of them from the start.

    >>> heads = TaskHeads(4, 2, tasks=3)
    >>> heads.show(1)
    >>> heads(torch.ones(5, 4)).shape, heads.contexts
    (torch.Size([5, 2]), 3)
    """

    def __init__(self, inputs: int, classes: int, tasks: int = 1) -> None:
        if min(inputs, classes, tasks) < 1:
            raise ValueError(
                f"TaskHeads needs at least one input, class and task, not {inputs}, {classes} and {tasks}."
            )
        super().__init__(inputs, classes)
        self.context = 0
        while self.contexts < tasks:
            self.add_context()

    @property
    def contexts(self) -> int:
        """How many heads there are."""
        return len(self._parameters) // 2

    def add_context(self) -> None:
        """One more head, started like nn.Linear."""
        k, bound = self.contexts, 1 / math.sqrt(self.in_features)
        like = self.weight.detach()
        self.register_parameter(
            f"weight_{k}", nn.Parameter(torch.empty_like(like).uniform_(-bound, bound))
        )
        self.register_parameter(
            f"bias_{k}", nn.Parameter(like.new_empty(self.out_features).uniform_(-bound, bound))
        )

    def head(self, context: int) -> tuple[Tensor, Tensor]:
        """Weight and bias of one context."""
        end = f"_{context}" if context else ""
        # getattr, not get_parameter: inside torch.func.functional_call they are tensors.
        weight: Tensor = getattr(self, "weight" + end)
        bias: Tensor = getattr(self, "bias" + end)
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
    """Put TaskHeads in the place of the Linear that ends a model, in place; returns the model.

    >>> from .mlp import mlp
    >>> with_task_heads(mlp(4, (3,), 2, norm="none"), tasks=5)[-1]
    TaskHeads(3, 2, tasks=5)
    """
    last = model[-1] if len(model) else None
    if not isinstance(last, nn.Linear) or isinstance(last, TaskHeads):
        raise ValueError(
            f"Heads take the place of a Linear at the end of a model, but it ends with {type(last).__name__}."
        )
    model[-1] = TaskHeads(last.in_features, last.out_features, tasks).to(last.weight)
    return model
