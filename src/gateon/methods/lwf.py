"""LwF: on the data of a new task the network goes on answering as it did before that task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..gating.contexts import context_of, showing
from ..storage.states import Grown, Whole
from .base import Adopt, Batch, Method
from .shared.calls import check_strength, evaluating, logits
from .shared.quadratic import check_fits, check_loaded

__all__ = ["LwF", "distillation"]


@dataclass
class LwF(Method):
    """Learning without forgetting (Li & Hoiem 2016, ECCV; 2018, TPAMI 40:2935).

    Loss + strength * H(softmax(z* / T), softmax(z / T)) on the batch at hand, where z are the
    network's outputs and z* those of the network at the end of the task before, in evaluation mode.
    Where every task has a head of its own, z and z* are those of the old heads, summed over them;
    with one head they are the outputs being trained.

    As in the publication the cross-entropy is not multiplied by T^2. Its first phase, in which a
    new head is trained alone, is left out.

    Args:
        strength: lambda_o, the weight of the distillation.
        temperature: T, of the softmax.

    >>> LwF().temperature
    2.0
    """

    strength: float = 1.0
    temperature: float = 2.0

    teacher: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    contexts: list[int] = field(default_factory=list, init=False, repr=False, compare=False)
    model: nn.Module | None = field(default=None, init=False, repr=False, compare=False)

    name = "lwf"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check_strength("strength", self.strength)
        check_strength("temperature", self.temperature)
        if self.temperature == 0:
            raise ValueError("temperature must be above 0.")

    def prepare(self, model: nn.Module) -> Adopt:
        """Check that a network of the past still fits the parameters of every optimizer."""
        self.model, self.teacher, self.contexts = model, {}, []

        def adopt(optimizer: Optimizer) -> None:
            buffers = dict(model.named_buffers())  # those may grow with the contexts
            check_fits(
                {name: value for name, value in self.teacher.items() if name not in buffers}, model
            )

        return adopt

    def penalty(self, model: nn.Module, batch: Batch) -> Tensor | None:
        """How far the answers to the batch are from those of the network before this task."""
        if not self.teacher:
            return None
        here = context_of(model)
        total: Tensor | None = None
        for context in [None] if here is None else [k for k in self.contexts if k != here]:
            with showing(model, context):
                student = batch.logits if context is None else logits(model, batch.x)
                answers = self._answers(model, batch.x)
            term = distillation(student.float(), answers, self.temperature)
            total = term if total is None else total + term
        return None if total is None else self.strength * total

    @torch.no_grad()
    def _answers(self, model: nn.Module, x: Any) -> Tensor:
        """Outputs of the network as it was."""
        with evaluating(model):
            return logits(model, x, self.teacher).float()

    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Remember the network; no data is needed."""
        context = context_of(model)
        if isinstance(context, int) and context not in self.contexts:
            self.contexts.append(context)
        self.teacher = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """The network as it was, and the contexts it knew."""
        return {"teacher": dict(self.teacher), "contexts": list(self.contexts)}

    def state_like(self, state: Any, model: Grown) -> Any:
        """The network as it was, without contexts that were added later."""
        contexts = [Whole(0, model.context.high) for _ in state["contexts"]]
        least = 1 + max((k for k in state["contexts"] if type(k) is int), default=0)
        teacher = {
            name: model.earlier(name, least) for name in (model.state if state["teacher"] else ())
        }
        return {"teacher": teacher, "contexts": contexts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        model = check_loaded({}, self.model)
        device = next(model.parameters()).device
        self.teacher = {name: value.to(device).clone() for name, value in state["teacher"].items()}
        self.contexts = list(state["contexts"])


def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """The mean over samples of H(softmax(teacher / T), softmax(student / T)).

    >>> float(distillation(torch.zeros(1, 2), torch.zeros(1, 2), 2.0))  # log 2
    0.6931471824645996
    """
    return (
        -((teacher / temperature).softmax(1) * (student / temperature).log_softmax(1)).sum(1).mean()
    )
