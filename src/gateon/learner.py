"""Learner: a model, an optimizer factory and a method, learning batch by batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from .gates import gates_of
from .methods.base import Method
from .methods.finetune import Finetune
from .norm import kept_statistics

__all__ = ["Learner", "Observation"]


@dataclass(frozen=True)
class Observation:
    """What one batch showed: its loss, the context it was learned in, and whether that context is a new one or another."""

    loss: float
    context: int
    switched: bool


class Learner:
    """Learns a stream of batches, one context after another.

    Args:
        model: the network; the method may change it in place.
        optimizer: builds an optimizer from parameters, such as `partial(torch.optim.Adam, lr=5e-3)`; anew at every switch.
        method: what is done against forgetting.
        schedule: builds a learning-rate schedule from an optimizer, if any; stepped after every batch.
        loss: of outputs and labels.
        precision: "float32", or "bf16" for autocast with float32 weights.

    >>> from functools import partial
    >>> import gateon
    >>> model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> learner = Learner(model, optimizer=partial(torch.optim.Adam, lr=1e-2), method=gateon.GateON())
    >>> x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
    >>> seen = [learner.observe(x, y, context=k) for k in (0, 0, 1)]
    >>> [(s.context, s.switched) for s in seen]
    [(0, True), (0, False), (1, True)]
    >>> learner.predict(x, context=0).shape
    torch.Size([8, 2])
    """

    separate = False  # contexts share one network: learning one may change the others

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
        method: Method | None = None,
        schedule: Callable[[Optimizer], LRScheduler] | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
        precision: Literal["float32", "bf16"] = "float32",
    ) -> None:
        if isinstance(optimizer, Optimizer):
            raise TypeError("Learner builds its optimizers itself: give it a factory, such as partial(torch.optim.Adam, lr=5e-3).")
        if precision not in ("float32", "bf16"):
            raise ValueError(f'precision is "float32" or "bf16", not {precision!r}.')
        self.model, self.method, self.loss, self.precision = model, method or Finetune(), loss, precision
        self.step = 0
        self.context: int | None = None
        self._new_optimizer, self._new_schedule = optimizer, schedule
        self._adopt = self.method.prepare(model)
        self._renew_optimizer()

    def observe(self, x: Any, y: Tensor, context: int) -> Observation:
        """Learn one batch in a context; contexts that do not exist yet are added.

        A loss that is not finite changes nothing and raises FloatingPointError.
        """
        switched = self._switch(context)
        self.model.train()
        restore = kept_statistics(self.model)
        loss = self._loss_of(x, y)
        value = loss.item()
        if not math.isfinite(value):
            restore()
            raise FloatingPointError(
                f"The loss is {value} at step {self.step} in context {context}; nothing was learned from that batch. "
                "Lower the learning rate, or look for such values in the data."
            )
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.method.stepped(self.model, self.optimizer)
        if self.schedule is not None:
            self.schedule.step()
        self.step += 1
        return Observation(value, context, switched)

    @torch.no_grad()
    def predict(self, x: Any, context: int | None = None) -> Tensor:
        """The model's outputs for x in a context, by default the one being learned."""
        gates, training = gates_of(self.model), self.model.training
        active = None if gates is None else gates.context
        if gates is not None and context is not None:
            gates.show(context)
        self.model.eval()
        try:
            return self._outputs(x).float().cpu()
        finally:
            self.model.train(training)
            if gates is not None and active is not None:
                gates.show(active)

    def end_task(self, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Tell the method that a task is over."""
        self.method.end_task(self.model, task, data)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides how learning goes on: model, optimizer, schedule, method, position, generator."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "method": self.method.state_dict(),
            "step": self.step,
            "context": self.context,
            "generator": torch.get_rng_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken, in a learner made with the same arguments."""
        self.model.load_state_dict(state["model"])
        self.context, self.step = state["context"], state["step"]
        gates = gates_of(self.model)
        if gates is not None and self.context is not None:
            gates.show(self.context)
        self._renew_optimizer()
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None and state["schedule"] is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.method.load_state_dict(state["method"])
        torch.set_rng_state(state["generator"])

    def _switch(self, context: int) -> bool:
        if context == self.context:
            return False
        gates = gates_of(self.model)
        if gates is not None:
            if context < 0:
                raise IndexError(f"Context {context} does not exist: contexts count from 0.")
            while gates.contexts <= context:
                gates.add_context()
            gates.switch(context)
        if self.context is not None:
            self._renew_optimizer()
        self.context = context
        return True

    def _renew_optimizer(self) -> None:
        self.optimizer = self._new_optimizer(self.model.parameters())
        self.schedule = None if self._new_schedule is None else self._new_schedule(self.optimizer)
        if self._adopt is not None:
            self._adopt(self.optimizer)

    def _loss_of(self, x: Any, y: Tensor) -> Tensor:
        outputs = self._outputs(x)
        loss = self.loss(outputs, y.to(outputs.device))
        penalty = self.method.penalty(self.model)
        return loss if penalty is None else loss + penalty

    def _outputs(self, x: Any) -> Tensor:
        device = next(self.model.parameters()).device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            if isinstance(x, Mapping):
                output = self.model(**{name: value.to(device) for name, value in x.items()})
            else:
                output = self.model(x.to(device))
        outputs: Tensor = getattr(output, "logits", output)
        return outputs
