"""The method contract: five calls and a state, by which a method prevents forgetting.

    expect      before a task: what is known of it
    prepare     once, before the first optimizer: change the model, follow its optimizers
    penalty     in every step: what is added to the loss
    stepped     after every step
    end_task    after a task, with its data

A method that needs more than that gets its own learner. A method that can work in the sub-network
of a context says so in `narrowed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ..storage.states import ANYTHING, Grown
from ..subnetwork.part import Keeper

__all__ = ["Adopt", "Batch", "Method", "Narrowed", "Outline"]

Adopt = Callable[[Optimizer], None]


@dataclass(frozen=True)
class Outline:
    """What is known about a task before it begins.

    Args:
        steps: batches in the task.
        epoch: batches in one pass over its samples.
        counts: number of samples of each class.
    """

    steps: int
    epoch: int
    counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Batch:
    """The batch being learned.

    Args:
        x: the inputs on the model's device: one tensor, or several by name.
        y: the labels.
        logits: the model's outputs for x, with their graph.
    """

    x: Any
    y: Tensor
    logits: Tensor


class Method:
    """Does nothing at any call: plain fine-tuning. Methods override the calls they need."""

    name = "finetune"
    replay = False  # whether it stores data of past tasks
    label_at_test = False  # whether it must be told the task to predict
    whole_batch = False  # whether it must see all samples of a batch at once
    served: object = None  # the learner it was given to last: its state belongs to one network

    @property
    def needs_ends(self) -> bool:
        """Whether it must be told when a task ends."""
        return type(self).end_task is not Method.end_task

    def expect(self, outline: Outline) -> None:
        """Before a task begins, if its size is known."""

    def prepare(self, model: nn.Module) -> Adopt | None:
        """Before the first optimizer is built: change the model.

        Returns:
            What to do with every optimizer that is built from then on, if anything.
        """
        return None

    def penalty(self, model: nn.Module, batch: Batch) -> Tensor | None:
        """What is added to the loss of a batch; None for nothing."""
        return None

    def stepped(self, model: nn.Module, optimizer: Optimizer) -> None:
        """After every step."""

    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """After a task; `data` are its batches, for methods that look at them again."""

    def narrowed(self) -> Narrowed | None:
        """The method at work in a sub-network; None, the default, if it needs the whole network.

        It may be narrowed if nothing it does moves a unit whose gain is 0, or depends on one.
        """
        return None

    def state_dict(self) -> dict[str, Any]:
        """Everything the method remembers outside the model: tensors, numbers and strings."""
        return {}

    def state_like(self, state: Any, model: Grown) -> Any:
        """A template of the states that fit a model; by default any state does.

        Args:
            state: the state to check, which says how many of everything there are.
            model: the model as it will be when the state is loaded.
        """
        return {} if type(self).state_dict is Method.state_dict else ANYTHING

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, after `prepare`."""


@dataclass(frozen=True)
class Narrowed:
    """A method at work in a sub-network.

    Args:
        method: gets the calls of every step, with the sub-network for the model: the method itself,
            or a twin that holds the part of its state inside the cut.
        keeper: cuts the method's per-parameter state, and puts it back; None if it has none.
    """

    method: Method
    keeper: Keeper | None = None
