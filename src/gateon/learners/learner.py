"""Learner: a model, an optimizer factory, a method, and contexts that are given or inferred; it learns batch by batch."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Literal, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..anatomy.contextual import as_context, contexts_of, show_context
from ..anatomy.norm import ContextNorm, kept_statistics
from ..availability.obstruct import check_gradients, obstruction_of
from ..detection.detector import ContextDetector
from ..detection.infer import Inference, Observation, Recognition, recognised
from ..gating.gates import gates_of
from ..methods.base import Method
from ..methods.finetune import Finetune
from ..storage.states import (
    ANYTHING,
    COUNT,
    GENERATOR,
    Inputs,
    check,
    check_fits,
    grown,
    indices_like,
    optimizer_like,
    schedule_like,
)
from .part import Part, part_shapes
from .training import Outline, tell

__all__ = ["Learner", "Observation"]


class Learner:
    """Learns a stream of batches, one context after another.

    Where the method allows it, only the active sub-network of a context is trained and evaluated:
    the same mathematics at a part of the cost. `model` and `method` always show the whole, with
    everything learned so far in it.

    Args:
        model: the network; the method may change it in place.
        optimizer: builds an optimizer from parameters, such as `partial(torch.optim.Adam,
            lr=5e-3)`; anew at every switch.
        method: what is done against forgetting.
        schedule: builds a learning-rate schedule from an optimizer, if any; stepped after every
            batch.
        loss: of outputs and labels.
        precision: "float32", or "bf16" for autocast with float32 weights.
        contexts: a detector that infers the context of each batch from its loss; None if `observe`
            is told the context.
        compact: False trains and evaluates at full width always. So it does by itself with weight
            decay, with optimizers that move weights without a gradient, and where nothing can be
            narrowed; `is_compact` tells.
        keep_optimizer: go on with the same optimizer (not schedule) at a switch, at full width; a
        switch that adds parameters needs a new one all the same.

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
        contexts: ContextDetector | None = None,
        compact: bool = True,
        keep_optimizer: bool = False,
    ) -> None:
        if isinstance(optimizer, Optimizer):
            raise TypeError(
                "Learner builds its optimizers itself: give it a factory, such as partial(torch.optim.Adam, lr=5e-3)."
            )
        if precision not in ("float32", "bf16"):
            raise ValueError(f'precision is "float32" or "bf16", not {precision!r}.')
        self.loss, self.precision, self.compact = loss, precision, compact and not keep_optimizer
        self.keep_optimizer = keep_optimizer
        self.contexts = contexts
        self.steps = 0
        self.context: int | None = None
        self._whole, self._method = model, method or Finetune()
        self.description = {
            "model": _shown(model),
            "method": _shown(self._method),
            "schedule": _shown(schedule),
            "loss": _shown(loss),
            "precision": precision,
        }
        if contexts is not None:
            self.description["contexts"] = _shown(contexts)
        if keep_optimizer:
            self.description["keep_optimizer"] = "True"
        self._new_optimizer, self._new_schedule = optimizer, schedule
        self._adopt = self._method.prepare(model)
        self._served = self._method.served = object()
        if contexts is not None and gates_of(model) is None and contexts_of(model) is None:
            raise ValueError(
                f"Under {self._method.name} a network is the same in every context, so none can be "
                "inferred: use known contexts, or a method that has contexts, such as n-gateon."
            )
        if contexts is not None and self._method.needs_ends:
            raise ValueError(
                f"{self._method.name} must be told where a task ends, which is unknown if contexts "
                "are inferred: use known contexts, or another method, such as n-gateon."
            )
        self._part: Part | None = None  # the sub-network being learned; None at full width
        self._shown: Part | None = None  # the sub-network evaluated last
        self._inference = None if contexts is None else Inference(contexts)
        self._renew_optimizer()
        self.description["optimizer"] = _shown(self.optimizer)

    @property
    def is_compact(self) -> bool:
        """Whether the sub-network of the context is being trained, and not the whole: see `compact`."""
        return self._part is not None

    @property
    def model(self) -> nn.Module:
        """The whole network, with what the sub-network at work has learned."""
        self._write_back()
        return self._whole

    @property
    def method(self) -> Method:
        """The method, with its state of now."""
        self._check_method()
        self._write_back()
        return self._method

    def _check_method(self) -> None:
        if self._method.served is not self._served:
            raise RuntimeError(
                f"The {type(self._method).__name__}() object of this learner was given to another learner since, whose network it "
                "serves now: give each learner a method of its own."
            )

    def expect(self, outline: Outline) -> None:
        """Be told of the task that comes, before it begins: for schedules, losses and methods with a course within a task."""
        tell(outline, self._new_schedule, self.loss, self._method)

    def observe(self, x: Any, y: Tensor, context: int | None = None) -> Observation:
        """Learn one batch in a context; contexts that do not exist yet are added.

        Without a context the detector finds it. A batch that may be of another task is not learned
        before that is sure, so that nothing is learned in the wrong context.

        A loss that is not finite raises FloatingPointError; nothing is learned from that batch.
        """
        if not y.numel():
            raise ValueError("The batch is empty: leave it out.")
        if self._inference is not None:
            if context is not None:
                raise ValueError(
                    "This learner infers its contexts: leave context out, or make it without contexts=."
                )
            return self._inference.observe(self, x, y)
        if context is None:
            raise ValueError(
                "Say which context the batch belongs to, or make the Learner with contexts=gateon.ContextDetector()."
            )
        switched = self.switch(context)
        return Observation(self.step(*self.forward(x, y)), as_context(context), switched)

    @torch.no_grad()
    def predict(self, x: Any, context: int | Literal["batch", "sample"] | None = None) -> Tensor:
        """The model's outputs for x in a context, by default the one being learned.

        "batch" or "sample": in the context recognised for all of x, or for each sample: see
        `recognise`.
        """
        if isinstance(context, str) and context in ("batch", "sample"):
            outputs = list(self.outputs_under(x, range(self._contexts())))
            found = recognised(outputs, each=context == "sample").context
            return (
                outputs[int(found)]
                if context == "batch"
                else torch.stack(outputs)[found, torch.arange(len(found))]
            )
        if isinstance(context, str):
            raise ValueError(f'context is a number, "batch" or "sample", not {context!r}.')
        with self._showing(None if context is None else as_context(context)) as network:
            return self._outputs(network, x).float().cpu()

    def recognise(self, x: Any, each: bool = False) -> Recognition:
        """Which context unlabelled inputs belong to, and how sure that is.

        It is the one under which the outputs, taken as logits of classes, tell most of the inputs:
        see `gateon.detection.infer.recognised`.

        Args:
            x: the inputs; about a hundred are enough for all to be told apart from other contexts.
            each: for each sample by itself.
        """
        return recognised(list(self.outputs_under(x, range(self._contexts()))), each=each)

    def end_task(self, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Tell the method that a task is over."""
        self.method.end_task(self.model, task, data)
        if self._part is not None:
            self._part.renew()

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides how learning goes on: model, optimizer, schedule, method, detector, position, generator."""
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
        """Go on exactly where `state_dict` was taken, in a learner made with the same arguments.

        A state that does not fit raises ValueError, and the learner is as it was before.

        Args:
            state: what `state_dict` gave.
            inputs: what batches look like, if batches in the state are to be compared with it.
        """
        self._check_method()
        # there were no detectors once
        state = {"contexts": None, **state} if isinstance(state, Mapping) else {}
        check_fits(state, partial(self.state_like, inputs=inputs))
        self._part = self._shown = None
        self._whole.load_state_dict(state["model"])
        self.context, self.steps = state["context"], state["step"]
        gates = gates_of(self._whole)
        if gates is not None and self.context is not None:
            gates.resume(self.context)
        if self.context is not None:
            show_context(self._whole, self.context)
        self._method.load_state_dict(state["method"])
        self._renew_optimizer(state["active"], whole=state["active"] is None)
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None and state["schedule"] is not None:
            self.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["generator"])
        if self._inference is not None:
            self._inference.load_state_dict(state["contexts"])

    def state_like(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> dict[str, Any]:
        """The template of a state that fits, with as many contexts as this one has; see `gateon.storage.states`."""
        model, active = grown(self._whole, state.get("model"), inputs), state.get("active")
        parameters = model.parameters
        if active is not None:
            check(active, self._active_like(active), "active")
            check(state.get("context"), model.context, "context")
            parameters = part_shapes(self._whole, model.model, state["context"], active)
        optimizer = state.get("optimizer")
        check(optimizer, {"state": ANYTHING, "param_groups": ANYTHING}, "optimizer")
        return {
            "model": model.state,
            "optimizer": optimizer_like(
                self._new_optimizer,
                list(parameters.values()),
                self.optimizer.param_groups,
                optimizer,
            ),
            "schedule": schedule_like(self.schedule),
            "method": self._method.state_like(state.get("method"), model),
            "contexts": None
            if self._inference is None
            else self._inference.state_like(state.get("contexts"), model),
            "active": ANYTHING,
            "step": COUNT,
            "context": None if state.get("context") is None else model.context,
            "generator": GENERATOR,
        }

    def _active_like(self, active: Any) -> dict[str, Any]:
        """Units of sites that can be narrowed, where the learner trains sub-networks at all."""
        gates = gates_of(self._whole)
        narrow = (
            {}
            if gates is None
            else {name: site.units for name, site in gates.sites.items() if site.narrows}
        )
        if (
            not self.compact
            or not Part.is_exact(self._method, self.optimizer)
            or not isinstance(active, Mapping)
            or not active
        ):
            raise ValueError("active must be nothing: this learner trains the whole network")
        return {name: indices_like(units) for name, units in narrow.items() if name in active}

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be copied: hooks tie the optimizer to the network of the original."""
        raise TypeError(
            "A Learner cannot be copied or pickled: make another one with the same arguments and a new model and "
            "method, and give it this one's state by load_state_dict(learner.state_dict())."
        )

    # What inference asks for, too.

    def forward(self, x: Any, y: Tensor) -> tuple[Tensor, float, Callable[[], None]]:
        """The loss of a batch, its value, and the way to undo what the forward pass moved."""
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
            loss, penalty = self._loss_of(x, y), self._method.penalty(network)
        except Exception:  # a batch that is refused leaves no trace in running statistics
            restore()
            raise
        # without the penalty: a detector compares it with what other contexts would have
        value = loss.item()
        loss = loss if penalty is None else loss + penalty
        if not math.isfinite(value if penalty is None else loss.item()):
            restore()
            raise FloatingPointError(
                f"The loss is {value} at step {self.steps} in context {self.context}; nothing was learned from that batch. "
                "Lower the learning rate, or look for such values in the data."
            )
        return loss, value, restore

    def step(self, loss: Tensor, value: float, restore: Callable[[], None]) -> float:
        """Learn from that loss; its value."""
        loss.backward()
        try:
            if self._checks_gradients:
                groups = self.optimizer.param_groups
                check_gradients([p for group in groups for p in group["params"]], self.steps)
            self.optimizer.step()
        except FloatingPointError:  # a gradient that is not finite, found before anything moved
            self.optimizer.zero_grad()
            restore()
            raise
        self.optimizer.zero_grad()
        self._method.stepped(self._network, self.optimizer)
        if self.schedule is not None:
            self.schedule.step()
        self.steps += 1
        return value

    @torch.no_grad()
    def outputs_under(self, x: Any, contexts: Sequence[int]) -> Iterator[Tensor]:
        """Outputs for x in each of several contexts: sub-networks in turn, or where there are none, all in one batched pass."""
        if isinstance(x, Tensor) and not len(x):
            raise ValueError(
                "There are no inputs to recognise a context by: give at least one sample."
            )
        gates = gates_of(self._whole)
        mixing = any(
            isinstance(m, ContextNorm) and m.statistics == "batch" for m in self._whole.modules()
        )
        others = mixing or contexts_of(self._whole) is not None
        if gates is None or self._part is not None or not isinstance(x, Tensor) or others:
            yield from (self.predict(x, context=k) for k in contexts)
            return
        at_once = max(1, 4096 // len(x))  # contexts; so that memory stays small
        for some in (contexts[i : i + at_once] for i in range(0, len(contexts), at_once)):
            with self._showing(self.context) as network:
                gates.show(torch.tensor(some).repeat_interleave(len(x)))
                yield from (
                    self._outputs(network, x.repeat(len(some), *[1] * (x.dim() - 1)))
                    .float()
                    .cpu()
                    .split(len(x))
                )

    def _write_back(self) -> None:
        if self._part is not None and self._part.step != self.steps:
            self._part.write_back()
            self._part.step = self.steps

    @property
    def _network(self) -> nn.Module:
        return self._whole if self._part is None else self._part.network

    def _contexts(self) -> int:
        gates = gates_of(self._whole)
        return max(1, contexts_of(self._whole) or 1 if gates is None else gates.contexts)

    def switch(self, context: int) -> bool:
        """Learn another context from now on, a new one if need be; whether it is another one."""
        self._check_method()
        context = as_context(context)
        if context == self.context:
            return False
        model = self.model  # written back
        self._part = self._shown = None
        gates = gates_of(model)
        if gates is not None:
            while gates.contexts <= context:
                gates.add_context()
            gates.switch(context)
        show_context(model, context)
        self.context = context
        self._renew_optimizer()
        return True

    def _renew_optimizer(
        self, active: Mapping[str, Tensor] | None = None, *, whole: bool = False
    ) -> None:
        """A new optimizer for the network of the context: its sub-network, if that is exact and smaller."""
        if self.compact and self.context is not None and not whole:
            self._part = Part.of(
                self._whole, self._method, self.context, self._new_optimizer, active
            )
        if self._part is not None:
            self.optimizer = self._part.optimizer
        elif not (self.keep_optimizer and self._has_all_parameters()):
            self.optimizer = self._new_optimizer(self._whole.parameters())
            if self._adopt is not None:
                self._adopt(self.optimizer)
        gates = gates_of(self._network)
        # obstruction does so itself
        self._checks_gradients = gates is None or obstruction_of(gates) is None
        for group in (
            self.optimizer.param_groups
        ):  # a kept optimizer still has the rate its last schedule ended with
            group["lr"] = group.pop("initial_lr", group["lr"])
        self.schedule = None if self._new_schedule is None else self._new_schedule(self.optimizer)

    def _has_all_parameters(self) -> bool:
        held = (
            {id(p) for group in self.optimizer.param_groups for p in group["params"]}
            if hasattr(self, "optimizer")
            else set()
        )
        return all(id(p) in held for p in self._whole.parameters())

    @contextmanager
    def _showing(self, context: int | None) -> Iterator[nn.Module]:
        """The network of a context in evaluation mode; everything as it was afterwards."""
        gates = gates_of(self._whole)
        if gates is not None and context is not None and not 0 <= context < gates.contexts:
            raise IndexError(
                f"Context {context} does not exist: there are {gates.contexts}; add_context() adds one."
            )
        if self.compact and gates is not None and context is not None and context != self.context:
            self._shown = (
                self._shown
                if self._shown is not None and self._shown.cut.context == context
                else None
            )
            self._shown = self._shown or Part.shown(self.model, self.method, context)
            if self._shown is not None:
                show_context(self._shown.network, context)
                self._shown.network.eval()
                yield self._shown.network
                return
        others = contexts_of(self._whole)
        if others is not None and context is not None and not 0 <= context < others:
            raise IndexError(f"Context {context} does not exist: there are {others}.")
        network = self._network if context in (None, self.context) else self.model
        modes, active = (
            [(module, module.training) for module in network.modules()],
            None if gates is None else gates.context,
        )
        if gates is not None and context is not None and network is self._whole:
            gates.show(context)
        if others is not None and context is not None:
            show_context(network, context)
        network.eval()
        try:
            yield network
        finally:
            for module, training in modes:  # the caller may have put some of them into evaluation
                module.training = training
            if gates is not None and active is not None and network is self._whole:
                gates.show(active)
            if others is not None and self.context is not None:
                show_context(network, self.context)

    def _loss_of(self, x: Any, y: Tensor) -> Tensor:
        outputs = self._outputs(self._network, x)
        try:
            loss = self.loss(
                outputs.float() if self.precision == "bf16" else outputs, y.to(outputs.device)
            )
        except IndexError as reason:
            found = f"Labels must be between 0 and {outputs.shape[-1] - 1}, got {int(y.min())} to {int(y.max())}"
            raise ValueError(f"{found}: give the network an output for each class.") from reason
        return loss

    def _outputs(self, network: nn.Module, x: Any) -> Tensor:
        device = next(network.parameters()).device
        mixed = (
            torch.autocast(device.type, torch.bfloat16)
            if self.precision == "bf16"
            else nullcontext()
        )
        with mixed:
            if isinstance(x, Mapping):
                output = network(**{name: value.to(device) for name, value in x.items()})
            else:
                output = network(x.to(device))
        outputs: Tensor = getattr(output, "logits", output)
        return outputs


def _shown(thing: Any) -> str:
    """Its repr, the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))
