"""SI: parameters that past tasks' losses fell along are held near their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..availability.ledgers import blocks
from ..storage.states import COUNT, Grown
from ..subnetwork.part import Cut
from .base import Adopt, Method, Narrowed
from .shared.calls import check_strength, trainable
from .shared.quadratic import check_fits, check_loaded, energy
from .shared.tables import Tables

__all__ = ["SI"]


@dataclass
class SI(Method):
    """Synaptic intelligence (Zenke, Poole & Ganguli 2017, ICML).

    While a task is learned every step adds w_i <- w_i - g_i (theta_i' - theta_i), where g is the
    gradient of the task's loss alone and theta' - theta what the optimizer really did: how much of
    the loss's fall is due to parameter i. At its end Omega_i <- Omega_i + max(0, w_i) / ((theta_i -
    theta*_i)^2 + damping), theta* <- theta and w <- 0, where theta* are the parameters at the end
    of the task before. The penalty is strength * sum_i Omega_i (theta_i - theta*_i)^2.

    The gradient of the penalty is added to the gradients just before the optimizer's step, after g
    was read; the loss of the learner is that of the task alone, and `value` gives the penalty. The
    publication does not reset its optimizer between tasks: `Learner(keep_optimizer=True)`.

    Args:
        strength: c, the weight of the penalty.
        damping: xi, which bounds the importance of parameters that hardly moved.
        skip: patterns of names of parameters that are left alone.

    >>> SI(strength=0.5).name
    'si'
    """

    strength: float = 0.1
    damping: float = 0.1
    skip: tuple[str, ...] = ()

    importance: dict[str, Tensor] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    path: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    anchor: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    tasks: int = field(default=0, init=False, repr=False, compare=False)
    model: nn.Module | None = field(default=None, init=False, repr=False, compare=False)

    name = "si"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check_strength("strength", self.strength)
        check_strength("damping", self.damping)
        if self.damping == 0:
            raise ValueError(
                "damping must be above 0: a parameter that did not move would divide by nothing."
            )

    def prepare(self, model: nn.Module) -> Adopt:
        """Follow the path of every optimizer's steps."""
        self.model = model
        self.importance, self.path, self.anchor, self.tasks = {}, {}, {}, 0
        # Parameter and gradient of the step. They are kept: new memory costs more than copying.
        before: dict[str, tuple[Tensor, Tensor]] = {}

        @torch.no_grad()
        def before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            for name, p in self._held(model).items():
                if p.grad is None or name not in self.path:
                    before.pop(name, None)
                    continue
                if name not in before:
                    before[name] = torch.empty_like(p), torch.empty_like(p)
                past = self.importance[name], self.anchor[name]
                # Both copies and the pull of `quadratic.pull` in one pass: a step is bound by
                # memory here.
                for theta, g, then, gradient, Omega, anchor in blocks(
                    p, p.grad, *before[name], *past
                ):
                    then.copy_(theta)
                    gradient.copy_(g)
                    if self.tasks:
                        g.addcmul_(Omega, then - anchor, value=2 * self.strength)

        @torch.no_grad()
        def after_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            parameters = self._held(model)
            for name, (theta, gradient) in before.items():
                for w, g, now, then in blocks(self.path[name], gradient, parameters[name], theta):
                    w.addcmul_(g, now - then, value=-1)

        def adopt(optimizer: Optimizer) -> None:
            self.begin(model)
            optimizer.register_step_pre_hook(before_step)
            optimizer.register_step_post_hook(after_step)

        return adopt

    def begin(self, model: nn.Module) -> None:
        """Begin the path of every parameter that has none yet."""
        check_fits(self.path, model)
        for name, p in self._held(model).items():
            if name not in self.path:
                self.path[name], self.importance[name] = torch.zeros_like(p), torch.zeros_like(p)
                self.anchor[name] = p.detach().clone()

    def narrowed(self) -> Narrowed:
        """A parameter that is left out has no gradient, stays at its anchor and is not pulled."""
        paths = _Paths(self, ("importance", "path", "anchor"), ("path",), ("tasks",))
        return Narrowed(paths.twin, paths)

    def _held(self, model: nn.Module) -> dict[str, nn.Parameter]:
        found = trainable(model)
        return {
            name: p
            for name, p in found.items()
            if not any(fnmatchcase(name, pattern) for pattern in self.skip)
        }

    def value(self, model: nn.Module) -> Tensor:
        """The penalty."""
        return self.strength * energy(model, self.importance, self.anchor)

    @torch.no_grad()
    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Turn the path of the task into importance, and begin a new one; no data is needed."""
        check_fits(self.path, model)
        for name, p in self._held(model).items():
            if name in self.path:
                moved = (p - self.anchor[name]).square_().add_(self.damping)
                self.importance[name] += self.path[name].relu().div_(moved)
                self.path[name].zero_()
                self.anchor[name].copy_(p)
        self.tasks += 1

    def state_dict(self) -> dict[str, Any]:
        """Importances, the path of the task at hand, anchors and the number of tasks."""
        return {
            "importance": dict(self.importance),
            "path": dict(self.path),
            "anchor": dict(self.anchor),
            "tasks": self.tasks,
        }

    def state_like(self, state: Any, model: Grown) -> Any:
        """Importance, path and anchor of the same parameters."""
        kept = {name: model.parameters[name] for name in state["path"]}
        return {"importance": kept, "path": kept, "anchor": kept, "tasks": COUNT}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        kept = {key: state[key] for key in ("importance", "path", "anchor")}
        parameters = dict(check_loaded(kept, self.model).named_parameters())
        for key, tensors in kept.items():
            setattr(
                self, key, {name: t.to(parameters[name]).clone() for name, t in tensors.items()}
            )
        self.tasks = int(state["tasks"])


class _Paths(Tables):
    whole: SI

    def take(self, cut: Cut, network: nn.Module) -> None:
        """Begin the paths of new parameters in the whole before they are cut."""
        assert self.whole.model is not None
        self.whole.begin(self.whole.model)
        super().take(cut, network)
