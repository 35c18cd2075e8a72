"""Learner: a model, an optimizer factory, a method, and contexts that are given or inferred."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..anatomy.contextual import as_context, contexts_of
from ..anatomy.norm import kept_statistics
from ..detection.detector import ContextDetector
from ..detection.infer import Inference, Observation, Recognition, recognised
from ..gating.contexts import resume_context, switch_context
from ..methods.base import Batch, Method, Narrowed, Outline
from ..methods.finetune import Finetune
from ..methods.shared.calls import logits, moved
from ..parallel.batch import joint_outputs
from ..parallel.processes import ALONE, Processes
from ..storage.states import Inputs, check_fits, load_optimizer
from .checks import check_arguments, check_inferable, check_served, check_shared, loss_of
from .description import settings_of
from .protocol import check_finite, described
from .state import learner_like
from .training import tell
from .views import Precision, Views, computing
from .work import Setup, Watcher, Work, narrowed, work_on_part, work_on_whole

__all__ = ["Learner", "Observation"]


class Learner:
    """Learns a stream of batches, one context after another.

    If the method allows it, only the active sub-network of a context is trained and evaluated: the
    same mathematics at a fraction of the cost. `model` and `method` always show the whole, with
    everything learned so far.

    Args:
        model: the network; the method may change it in place.
        optimizer: builds an optimizer from parameters, such as `partial(torch.optim.Adam,
            lr=5e-3)`; a new one at every switch.
        method: what prevents forgetting.
        schedule: builds a learning-rate schedule from an optimizer, if any; stepped after every
            batch.
        loss: a function of outputs and labels.
        precision: "float32", or "bf16" for autocast with float32 weights.
        contexts: a detector that infers the context of each batch from its loss; None if `observe`
            is told the context.
        compact: False always trains and evaluates at full width. So does True with weight decay,
            with optimizers that move weights without a gradient, with methods that need the whole
            network, and where nothing can be narrowed; `is_compact` tells.
        keep_optimizer: keep the optimizer (but not the schedule) across switches, at full width; a
            switch that adds parameters still builds a new one.
        processes: those that share every batch, see `gateon.together`; all make the same calls with
            the whole batch, and learn what a single process would.

    >>> from functools import partial
    >>> import gateon
    >>> model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> learner = Learner(
    ...     model, optimizer=partial(torch.optim.Adam, lr=1e-2), method=gateon.GateON()
    ... )
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
        precision: Precision = "float32",
        contexts: ContextDetector | None = None,
        compact: bool = True,
        keep_optimizer: bool = False,
        processes: Processes = ALONE,
    ) -> None:
        check_arguments(optimizer, precision)
        self.loss, self.precision, self.compact = loss, precision, compact and not keep_optimizer
        self.keep_optimizer, self.contexts = keep_optimizer, contexts
        self.processes, self.steps = processes, 0
        self.watcher: Watcher | None = None
        method = method or Finetune()
        made_of = settings_of(model), settings_of(method)  # before the method changes them
        self._setup = Setup(model, method, method.prepare(model), optimizer, schedule)
        self._served = method.served = object()
        check_inferable(self._setup, contexts)
        check_shared(self._setup, processes)
        self._inference = None if contexts is None else Inference(contexts)
        self._work = work_on_whole(self._setup, None)
        self._views = Views(self._setup, processes, precision)
        others: dict[str, Any] = {"precision": precision}
        others |= {} if contexts is None else {"contexts": contexts}
        others |= {"keep_optimizer": True} if keep_optimizer else {}
        self.description = described(*made_of, schedule, loss, self.optimizer, others)

    @property
    def name(self) -> str:
        """The name of its method."""
        return self._setup.method.name

    def __repr__(self) -> str:
        """Its method, how much it has learned, and in which context it is."""
        where = "no context yet" if self.context is None else f"context {self.context}"
        part = ", in its sub-network" if self.is_compact else ""
        return f"<Learner {self.name}: {self.steps} steps, {where}{part}>"

    @property
    def replay(self) -> bool:
        """Whether its method stores data of past tasks."""
        return self._setup.method.replay

    @property
    def label_at_test(self) -> bool:
        """Whether its method must be told the task to predict."""
        return self._setup.method.label_at_test

    @property
    def context(self) -> int | None:
        """The one being learned; None before the first."""
        return self._work.context

    @property
    def optimizer(self) -> Optimizer:
        """The one at work; a switch builds another."""
        return self._work.optimizer

    @property
    def schedule(self) -> LRScheduler | None:
        """That of the optimizer at work, if any."""
        return self._work.schedule

    @property
    def is_compact(self) -> bool:
        """Whether the context's sub-network is being trained instead of the whole network."""
        return self._work.part is not None

    @property
    def model(self) -> nn.Module:
        """The whole network, including what the active sub-network has learned."""
        self._work.write_back()
        return self._setup.model

    @property
    def method(self) -> Method:
        """The method, with its current state."""
        check_served(self._setup, self._served)
        self._work.write_back()
        return self._setup.method

    def expect(self, outline: Outline) -> None:
        """Tell schedule, loss and method about the next task, before it begins."""
        self._setup.method.expect(outline)
        tell(outline, self._setup.schedule, self.loss)

    def observe(self, x: Any, y: Tensor, context: int | None = None) -> Observation:
        """Learn one batch in a context; contexts that do not exist yet are added.

        Without a context the detector finds it. A batch that may belong to another task is not
        learned until that is settled, so nothing is learned in the wrong context.

        A loss that is not finite raises FloatingPointError; nothing is learned from that batch.
        """
        if not y.numel():
            raise ValueError("The batch is empty: leave it out.")
        if self._inference is not None:
            if context is not None:
                raise ValueError(
                    "This learner infers its contexts: leave context out, or make it without "
                    "contexts=."
                )
            return self._inference.observe(self, x, y)
        if context is None:
            raise ValueError(
                "Say which context the batch belongs to, or make the Learner with "
                "contexts=gateon.ContextDetector()."
            )
        context = as_context(context)
        switched = context != self.context and self.switch(context)
        return Observation(self.step(*self.forward(x, y)), context, switched)

    def forward(self, x: Any, y: Tensor) -> tuple[Tensor, float, Callable[[], None]]:
        """The loss of a batch, its value, and a function that undoes the forward pass."""
        check_served(self._setup, self._served)
        self._views.forget()
        network = self._work.network
        if not network.training:
            network.train()
        if self.watcher is not None:
            self.watcher.before(self._work, self.steps)
        put_back, generator = kept_statistics(network), torch.get_rng_state()

        def restore() -> None:
            put_back()
            torch.set_rng_state(generator)

        try:
            x = moved(x, network)
            with computing(self.precision, network):
                outputs = joint_outputs(self.processes, network, x, logits)
            y = y.to(outputs.device)
            given = outputs.float() if self.precision == "bf16" else outputs
            loss = loss_of(self.loss, given, y)
            penalty = self._work.method.penalty(network, Batch(x, y, outputs))
        except Exception:  # a batch that is refused leaves no trace in running statistics
            restore()
            raise
        # Without the penalty: a detector compares it with the loss in other contexts.
        value = loss.item()
        check_finite(value, self.steps, self.context, restore)
        if penalty is not None:
            loss = loss + penalty
            check_finite(loss.item(), self.steps, self.context, restore)
        return loss, value, restore

    def step(self, loss: Tensor, value: float, restore: Callable[[], None]) -> float:
        """Learn from the loss that `forward` gave; returns its value."""
        self._work.step(loss, self.steps, self.processes, restore)
        if self.watcher is not None:
            self.watcher.after(self._work, self.steps)
        self.steps += 1
        return value

    @torch.no_grad()
    def predict(self, x: Any, context: int | Literal["batch", "sample"] | None = None) -> Tensor:
        """The model's outputs for x in a context, by default the one being learned.

        "batch" or "sample": in the context recognised for all of x, or for each sample: see
        `recognise`.
        """
        if isinstance(context, str):
            if context not in ("batch", "sample"):
                raise ValueError(f'context must be a number, "batch" or "sample", got {context!r}.')
            outputs = list(self.outputs_under(x, range(self._known())))
            found = recognised(outputs, each=context == "sample").context
            if context == "batch":
                return outputs[int(found)]
            return torch.stack(outputs)[found, torch.arange(len(found))]
        context = None if context is None else as_context(context)
        return self._views.outputs(self._work, x, context, compact=self.compact)

    def recognise(self, x: Any, each: bool = False) -> Recognition:
        """The context that unlabelled inputs belong to, and how certain that is.

        It is the one in which the outputs, taken as logits of classes, say most about the inputs:
        see `gateon.detection.infer.recognised`.

        Args:
            x: the inputs; about a hundred are enough to tell their context.
            each: for each sample on its own.
        """
        return recognised(list(self.outputs_under(x, range(self._known()))), each=each)

    def outputs_under(self, x: Any, contexts: Sequence[int]) -> Iterator[Tensor]:
        """Outputs for x in each of several contexts.

        Sub-networks are evaluated in turn; a whole network in one pass over all contexts, if every
        sample may be in a context of its own.
        """
        return self._views.outputs_under(self._work, x, contexts, compact=self.compact)

    def switch(self, context: int) -> bool:
        """Switch to a context, adding it if it is new; return whether the context changed."""
        check_served(self._setup, self._served)
        context = as_context(context)
        if context == self.context:
            return False
        self._views.forget()
        switch_context(self.model, context)
        self._work = self._work_in(context)
        return True

    def end_task(self, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Tell the method that a task is over."""
        self.method.end_task(self.model, task, data)
        part = self._work.part
        if part is not None and part.keeper is not None:
            part.keeper.renew()

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume learning."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "method": self.method.state_dict(),
            "contexts": None if self._inference is None else self._inference.state_dict(),
            "active": None if self._work.part is None else self._work.part.cut.active,
            "step": self.steps,
            "context": self.context,
            "generator": torch.get_rng_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> None:
        """Resume exactly where `state_dict` was taken, in a learner made with the same arguments.

        A state that does not fit raises ValueError and leaves the learner unchanged.

        Args:
            state: what `state_dict` returned.
            inputs: what batches look like, to check the batches in the state.
        """
        check_served(self._setup, self._served)
        # Older states have no detector.
        state = {"contexts": None, **state} if isinstance(state, Mapping) else {}
        check_fits(state, partial(self.state_like, inputs=inputs))
        self._views.forget()
        context, whole = state["context"], self._setup.model
        whole.load_state_dict(state["model"])
        if context is not None:
            resume_context(whole, context)
        self._setup.method.load_state_dict(state["method"])
        if context is None or state["active"] is None:
            self._work = self._work_on_whole(context)
        else:
            self._work = self._work_in(context, state["active"])
        self.steps = state["step"]
        load_optimizer(self.optimizer, state["optimizer"])
        if self.schedule is not None and state["schedule"] is not None:
            self.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["generator"])
        if self._inference is not None:
            self._inference.load_state_dict(state["contexts"])

    def state_like(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> dict[str, Any]:
        """A template of the states that fit; see `gateon.storage.states`."""
        narrow = self._narrowed() is not None
        return learner_like(state, self._setup, self._work, self._inference, inputs, narrow=narrow)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be copied: hooks tie the optimizer to the network of the original."""
        raise TypeError(
            "A Learner cannot be copied or pickled: make another one with the same arguments and a "
            "new model and method, and give it this one's state by "
            "load_state_dict(learner.state_dict())."
        )

    def _work_in(self, context: int, active: Mapping[str, Tensor] | None = None) -> Work:
        """Train the sub-network of a context, if that is exact and smaller; else the whole."""
        inside = self._narrowed()
        work = None if inside is None else work_on_part(self._setup, inside, context, active)
        return work or self._work_on_whole(context)

    def _work_on_whole(self, context: int | None) -> Work:
        kept = self.optimizer if self.keep_optimizer else None
        return work_on_whole(self._setup, context, kept)

    def _narrowed(self) -> Narrowed | None:
        return narrowed(self._setup, self.optimizer) if self.compact else None

    def _known(self) -> int:
        return max(1, contexts_of(self._setup.model) or 1)
