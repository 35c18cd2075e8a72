"""Experience replay: samples of past tasks are kept and learned again with every batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from ..gating.contexts import context_of, showing
from ..storage.states import COUNT, Grown
from .base import Adopt, Batch, Method
from .shared.calls import check_seed, outputs
from .shared.samples import Balance, Memory, gathered, joined, seeded

__all__ = ["Replay"]


@dataclass
class Replay(Method):
    """Experience replay (Chaudhry et al. 2019, "On tiny episodic memories in continual learning").

    Every step draws as many samples from the memory as the batch at hand has and learns a L_new +
    (1 - a) L_old. At the end of a task its samples enter the memory, which keeps `memory` of all
    tasks.

    The learner's loss is L_new + (1 - a) / a L_old; the gradients are multiplied by a just before
    the optimizer's step, so that a learning rate means the same with and without replay. What a
    step draws depends on the seed and its number alone.

    Args:
        memory: number of samples kept; none for all.
        balance: which samples are kept: "reservoir": all with equal probability; "class" or "task":
            the same number of each.
        share: weight of the new batch: "half": a = 1/2, as in one batch of both; "tasks": a = 1/k
            in the k-th task.
        loss: of outputs and labels.
        seed: of what is kept and drawn.

    >>> Replay(memory=500, balance="class").replay
    True
    """

    memory: int | None = 1000
    balance: Balance = "reservoir"
    share: Literal["half", "tasks"] = "half"
    loss: Callable[[Tensor, Tensor], Tensor] = field(default=F.cross_entropy, repr=False)
    seed: int = 0

    kept: Memory = field(init=False, repr=False, compare=False)
    tasks: int = field(default=0, init=False, repr=False, compare=False)
    steps: int = field(default=0, init=False, repr=False, compare=False)

    name = "replay"
    replay = True

    def __post_init__(self) -> None:
        """Validate the settings."""
        self.kept = Memory(self.memory, self.balance)
        check_seed(self.seed)
        if self.share not in ("half", "tasks"):
            raise ValueError(f'share must be "half" or "tasks", got {self.share!r}.')

    @property
    def new_share(self) -> float:
        """a: how much the batch at hand counts."""
        return 1.0 if not self.tasks else 0.5 if self.share == "half" else 1 / (self.tasks + 1)

    def prepare(self, model: nn.Module) -> Adopt:
        """Weigh the gradients of every optimizer's step."""
        self.kept, self.tasks, self.steps = Memory(self.memory, self.balance), 0, 0

        def weigh(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            if self.tasks and gradients:
                torch._foreach_mul_(gradients, self.new_share)

        def adopt(optimizer: Optimizer) -> None:
            optimizer.register_step_pre_hook(weigh)

        return adopt

    def penalty(self, model: nn.Module, batch: Batch) -> Tensor | None:
        """(1 - a) / a L_old, over as many stored samples as the batch has."""
        if not len(self.kept):
            return None
        size = len(batch.y)
        drawn = self.kept.draw(size, seeded(self.seed, self.tasks, self.steps))
        total = torch.zeros(())
        if context_of(model) is None:
            z = outputs(model, joined([part.x for part in drawn]))
            total = self.loss(z, torch.cat([part.y for part in drawn]).to(z.device))
        else:  # each in the context it was learned in
            for part in drawn:
                with showing(model, part.context):
                    z = outputs(model, part.x)
                weight = len(part.y) / size
                total = total.to(z) + self.loss(z, part.y.to(z.device)) * weight
        return (1 - self.new_share) / self.new_share * total

    def stepped(self, model: nn.Module, optimizer: Optimizer) -> None:
        """The next step draws anew."""
        self.steps += 1

    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Keep samples of the task."""
        context = context_of(model)
        known = context if isinstance(context, int) else None
        self.kept.add(gathered(data, task, seeded(self.seed, self.tasks), known))
        self.tasks += 1

    def state_dict(self) -> dict[str, Any]:
        """The samples, and the numbers of tasks and steps."""
        return self.kept.state_dict() | {"tasks": self.tasks, "steps": self.steps}

    def state_like(self, state: Any, model: Grown) -> Any:
        """Samples, and counts."""
        return self.kept.state_like(state, model) | {"tasks": COUNT, "steps": COUNT}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.kept.load_state_dict(state)
        self.tasks, self.steps = int(state["tasks"]), int(state["steps"])
