"""The contract of a method: four calls and its state. A method that needs more gets its own learner, not a fifth call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ..storage.states import ANYTHING, Grown

__all__ = ["Adopt", "Method"]

Adopt = Callable[[Optimizer], None]


class Method:
    """Does nothing at any of the four calls: plain fine-tuning. Methods override what they need."""

    name = "finetune"
    replay = False  # whether it needs stored data of past tasks
    label_at_test = False  # whether it needs to be told the task at prediction
    served: object = None  # the learner it was given to last: what it remembers is of one network

    @property
    def needs_ends(self) -> bool:
        """Whether it must be told where a task ends."""
        return type(self).end_task is not Method.end_task

    def prepare(self, model: nn.Module) -> Adopt | None:
        """Before the optimizer exists: change the model. Returns what to do with every optimizer then built, if anything."""
        return None

    def penalty(self, model: nn.Module) -> Tensor | None:
        """What is added to the loss of a batch."""
        return None

    def stepped(self, model: nn.Module, optimizer: Optimizer) -> None:
        """After every step."""

    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """When a task is over; `data` are batches of it, for methods that look back once."""

    def state_dict(self) -> dict[str, Any]:
        """Everything the method remembers outside the model, as tensors, numbers and strings."""
        return {}

    def state_like(self, state: Any, model: Grown) -> Any:
        """The template of a state that fits a model as it will be; see `gateon.storage.states`. By default anything does.

        `state` is the one in question, which says how much there is of everything.
        """
        return {} if type(self).state_dict is Method.state_dict else ANYTHING

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, after `prepare`."""
