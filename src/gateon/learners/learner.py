"""Learner: a model, an optimizer factory, a method, and contexts that are given or inferred."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Literal, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..anatomy.contextual import as_context, contexts_of, contextual
from ..anatomy.norm import ContextNorm, kept_statistics
from ..anatomy.wiring import evaluating
from ..availability.obstruct import check_gradients, obstruction_of
from ..detection.detector import ContextDetector
from ..detection.infer import Inference, Observation, Recognition, recognised
from ..gating.contexts import resume_context, showing, switch_context
from ..gating.gates import gates_of
from ..methods.base import Batch, Method, Narrowed, Outline
from ..methods.finetune import Finetune
from ..methods.shared.calls import logits, moved
from ..parallel.batch import average_gradients, check_shareable, joint_outputs
from ..parallel.processes import ALONE, Processes
from ..storage.states import Inputs, check_fits, load_optimizer
from ..subnetwork.cut import cut_for
from ..subnetwork.part import Part, leaves_idle_alone, take_part
from .description import settings_of
from .protocol import check_finite, described
from .state import learner_like
from .training import tell

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
        precision: Literal["float32", "bf16"] = "float32",
        contexts: ContextDetector | None = None,
        compact: bool = True,
        keep_optimizer: bool = False,
        processes: Processes = ALONE,
    ) -> None:
        if isinstance(optimizer, Optimizer):
            raise TypeError(
                "Learner builds its optimizers itself: give it a factory, such as "
                "partial(torch.optim.Adam, lr=5e-3)."
            )
        if precision not in ("float32", "bf16"):
            raise ValueError(f'precision must be "float32" or "bf16", got {precision!r}.')
        self.loss, self.precision, self.compact = loss, precision, compact and not keep_optimizer
        self.keep_optimizer, self.contexts = keep_optimizer, contexts
        self.processes, self.steps = processes, 0
        self.context: int | None = None
        self._whole, self._method = model, method or Finetune()
        self._new_optimizer, self._new_schedule = optimizer, schedule
        made_of = settings_of(model), settings_of(self._method)  # before the method changes them
        self._adopt = self._method.prepare(model)
        self._served = self._method.served = object()
        self._check_inferable()
        self._check_shareable()
        self._inference = None if contexts is None else Inference(contexts)
        self._part: Part | None = None  # the sub-network being trained; None at full width
        self._shown: Part | None = None  # the sub-network evaluated last
        self._work_on_whole()
        others: dict[str, Any] = {"precision": precision}
        others |= {} if contexts is None else {"contexts": contexts}
        others |= {"keep_optimizer": True} if keep_optimizer else {}
        self.description = described(*made_of, schedule, loss, self.optimizer, others)

    @property
    def name(self) -> str:
        """The name of its method."""
        return self._method.name

    @property
    def replay(self) -> bool:
        """Whether its method stores data of past tasks."""
        return self._method.replay

    @property
    def label_at_test(self) -> bool:
        """Whether its method must be told the task to predict."""
        return self._method.label_at_test

    @property
    def is_compact(self) -> bool:
        """Whether the context's sub-network is being trained instead of the whole network."""
        return self._part is not None

    @property
    def model(self) -> nn.Module:
        """The whole network, including what the active sub-network has learned."""
        self._write_back()
        return self._whole

    @property
    def method(self) -> Method:
        """The method, with its current state."""
        self._check_method()
        self._write_back()
        return self._method

    def expect(self, outline: Outline) -> None:
        """Tell schedule, loss and method about the next task, before it begins."""
        self._method.expect(outline)
        tell(outline, self._new_schedule, self.loss)

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
        self._check_method()
        self._shown = None
        network = self._network
        if not network.training:
            network.train()
        put_back, generator = kept_statistics(network), torch.get_rng_state()

        def restore() -> None:
            put_back()
            torch.set_rng_state(generator)

        try:
            x = moved(x, network)
            with self._mixed():
                outputs = joint_outputs(self.processes, network, x, logits)
            y = y.to(outputs.device)
            loss = self._loss_of(outputs, y)
            penalty = self._at_work.penalty(network, Batch(x, y, outputs))
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
        loss.backward()
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        average_gradients(self.processes, parameters)
        try:
            if self._checks_gradients:
                check_gradients(parameters, self.steps)
            self.optimizer.step()
        except FloatingPointError:  # a gradient that is not finite, found before anything moved
            self.optimizer.zero_grad()
            restore()
            raise
        self.optimizer.zero_grad()
        self._at_work.stepped(self._network, self.optimizer)
        if self.schedule is not None:
            self.schedule.step()
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
        with self._showing(None if context is None else as_context(context)) as network:
            return joint_outputs(self.processes, network, x, self._outputs).cpu()

    def recognise(self, x: Any, each: bool = False) -> Recognition:
        """The context that unlabelled inputs belong to, and how certain that is.

        It is the one in which the outputs, taken as logits of classes, say most about the inputs:
        see `gateon.detection.infer.recognised`.

        Args:
            x: the inputs; about a hundred are enough to tell their context.
            each: for each sample on its own.
        """
        return recognised(list(self.outputs_under(x, range(self._known()))), each=each)

    @torch.no_grad()
    def outputs_under(self, x: Any, contexts: Sequence[int]) -> Iterator[Tensor]:
        """Outputs for x in each of several contexts.

        Sub-networks are evaluated in turn; a whole network in one pass over all contexts, if every
        sample may be in a context of its own.
        """
        if isinstance(x, Tensor) and not len(x):
            raise ValueError(
                "There are no inputs to recognise a context by: give at least one sample."
            )
        if self._part is not None or not isinstance(x, Tensor) or not _mixes(self._whole):
            yield from (self.predict(x, context=k) for k in contexts)
            return
        at_once = max(1, 4096 // len(x))  # contexts, so that memory stays small
        for some in (contexts[i : i + at_once] for i in range(0, len(contexts), at_once)):
            rows = torch.tensor(some).repeat_interleave(len(x))
            with self._showing(None) as network, showing(network, rows):
                repeated = x.repeat(len(some), *[1] * (x.dim() - 1))
                outputs = self._outputs(network, repeated).cpu()
                yield from outputs.split(len(x))

    def switch(self, context: int) -> bool:
        """Switch to a context, adding it if it is new; return whether the context changed."""
        self._check_method()
        context = as_context(context)
        if context == self.context:
            return False
        model = self.model  # written back
        self._part = self._shown = None
        switch_context(model, context)
        self.context = context
        if not self._work_on_part():
            self._work_on_whole()
        return True

    def end_task(self, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Tell the method that a task is over."""
        self.method.end_task(self.model, task, data)
        if self._part is not None and self._part.keeper is not None:
            self._part.keeper.renew()

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume learning."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "method": self.method.state_dict(),
            "contexts": None if self._inference is None else self._inference.state_dict(),
            "active": None if self._part is None else self._part.cut.active,
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
        self._check_method()
        # Older states have no detector.
        state = {"contexts": None, **state} if isinstance(state, Mapping) else {}
        check_fits(state, partial(self.state_like, inputs=inputs))
        self._part = self._shown = None
        self._whole.load_state_dict(state["model"])
        self.context, self.steps = state["context"], state["step"]
        if self.context is not None:
            resume_context(self._whole, self.context)
        self._method.load_state_dict(state["method"])
        if state["active"] is None or not self._work_on_part(state["active"]):
            self._work_on_whole()
        load_optimizer(self.optimizer, state["optimizer"])
        if self.schedule is not None and state["schedule"] is not None:
            self.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["generator"])
        if self._inference is not None:
            self._inference.load_state_dict(state["contexts"])

    def state_like(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> dict[str, Any]:
        """A template of the states that fit; see `gateon.storage.states`."""
        return learner_like(
            state,
            self._whole,
            self._method,
            self._inference,
            self._new_optimizer,
            self.optimizer,
            self.schedule,
            narrow=self._narrowed() is not None,
            inputs=inputs,
        )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be copied: hooks tie the optimizer to the network of the original."""
        raise TypeError(
            "A Learner cannot be copied or pickled: make another one with the same arguments and a "
            "new model and method, and give it this one's state by "
            "load_state_dict(learner.state_dict())."
        )

    # What is being trained: the whole network, or the sub-network of the context.

    def _narrowed(self) -> Narrowed | None:
        """The method at work in a sub-network; None if training one would not be exact."""
        exact = self.compact and gates_of(self._whole) and leaves_idle_alone(self.optimizer)
        return self._method.narrowed() if exact else None

    def _work_on_part(self, active: Mapping[str, Tensor] | None = None) -> bool:
        """Train the sub-network of the context, if that is exact and smaller; return whether it
        is."""
        gates, narrowed = gates_of(self._whole), self._narrowed()
        if gates is None or narrowed is None or self.context is None:
            return False
        cut = cut_for(gates, self.context, active)
        if not cut.active:
            return False
        self._part = take_part(gates, cut, narrowed.keeper)
        self._written = self.steps  # when it was last written back
        self.optimizer = self._new_optimizer(self._part.network.parameters())
        if narrowed.keeper is not None:
            narrowed.keeper.follow(self.optimizer)
        self._begin(self._part.network, narrowed.method)
        return True

    def _work_on_whole(self) -> None:
        """Train the whole network."""
        self._part = None
        if not (self.keep_optimizer and self._has_all_parameters()):
            self.optimizer = self._new_optimizer(self._whole.parameters())
            if self._adopt is not None:
                self._adopt(self.optimizer)
        self._begin(self._whole, self._method)

    def _begin(self, network: nn.Module, method: Method) -> None:
        self._network, self._at_work = network, method
        gates = gates_of(network)
        # Obstruction checks them itself.
        self._checks_gradients = gates is None or obstruction_of(gates) is None
        # A kept optimizer still has the rate its last schedule ended with.
        for group in self.optimizer.param_groups:
            group["lr"] = group.pop("initial_lr", group["lr"])
        self.schedule = None if self._new_schedule is None else self._new_schedule(self.optimizer)

    def _write_back(self) -> None:
        if self._part is not None and self._written != self.steps:
            self._part.write_back()
            self._written = self.steps

    def _has_all_parameters(self) -> bool:
        groups = self.optimizer.param_groups if hasattr(self, "optimizer") else []
        held = {id(p) for group in groups for p in group["params"]}
        return all(id(p) in held for p in self._whole.parameters())

    # Outputs and losses.

    @contextmanager
    def _showing(self, context: int | None) -> Iterator[nn.Module]:
        """The network of a context in evaluation mode; everything is restored afterwards."""
        known = contexts_of(self._whole)
        if context is not None and known is not None and context >= known:
            raise IndexError(f"Context {context} does not exist: there are {known}.")
        elsewhere = context is not None and context != self.context
        if elsewhere and self._take_shown(context):
            assert self._shown is not None
            yield self._shown.network
            return
        network = self.model if elsewhere else self._network
        with (
            showing(network, context if network is self._whole else None),
            evaluating(network),
        ):
            yield network

    def _take_shown(self, context: int | None) -> bool:
        """Take out the sub-network of a context to evaluate it; return whether there is one."""
        gates = gates_of(self._whole)
        if not self.compact or gates is None or context is None or not self._method.narrowed():
            return False
        if self._shown is None or self._shown.cut.context != context:
            self._write_back()
            cut = cut_for(gates, context)
            self._shown = take_part(gates, cut, trained=False) if cut.active else None
            if self._shown is not None:
                self._shown.network.eval()
        return self._shown is not None

    def _known(self) -> int:
        return max(1, contexts_of(self._whole) or 1)

    def _outputs(self, network: nn.Module, x: Any) -> Tensor:
        with self._mixed():
            return logits(network, moved(x, network)).float()

    def _mixed(self) -> torch.autocast | nullcontext[None]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(next(self._network.parameters()).device.type, torch.bfloat16)

    def _loss_of(self, outputs: Tensor, y: Tensor) -> Tensor:
        try:
            return self.loss(outputs.float() if self.precision == "bf16" else outputs, y)
        except IndexError as reason:
            raise ValueError(
                f"Labels must be between 0 and {outputs.shape[-1] - 1}, got {int(y.min())} to "
                f"{int(y.max())}: give the network an output for each class."
            ) from reason

    # Checks.

    def _check_method(self) -> None:
        if self._method.served is not self._served:
            raise RuntimeError(
                f"The {type(self._method).__name__}() object of this learner was given to another "
                "learner since, and now serves its network: give each learner a method of its own."
            )

    def _check_inferable(self) -> None:
        if self.contexts is not None and contexts_of(self._whole) is None:
            raise ValueError(
                f"Under {self._method.name} a network is the same in every context, so none can be "
                "inferred: use known contexts, or a method that has contexts, such as n-gateon."
            )
        if self.contexts is not None and self._method.needs_ends:
            raise ValueError(
                f"{self._method.name} must be told where a task ends, which is unknown if contexts "
                "are inferred: use known contexts, or another method, such as n-gateon."
            )

    def _check_shareable(self) -> None:
        if self.processes.count == 1:
            return
        if self._method.whole_batch:
            raise ValueError(
                f"{self._method.name} must see all samples of a batch at once, so that several "
                "processes cannot share it: train with one process, or choose another method, such "
                "as n-gateon."
            )
        check_shareable(self._whole)


def _mixes(model: nn.Module) -> bool:
    """Whether one batch may hold samples in different contexts."""
    found = contextual(model)
    by_batch = any(isinstance(m, ContextNorm) and m.statistics == "batch" for m in model.modules())
    return gates_of(model) is not None and all(m.per_sample for m in found) and not by_batch
