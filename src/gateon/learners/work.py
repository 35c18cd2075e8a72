"""What a learner trains: the whole network, or the sub-network of a context.

Either has an optimizer and a schedule of its own, made anew at every switch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..availability.obstruct import check_gradients, obstruction_of
from ..gating.gates import gates_of
from ..methods.base import Adopt, Method, Narrowed
from ..parallel.batch import average_gradients
from ..parallel.processes import Processes
from ..subnetwork.cut import cut_for
from ..subnetwork.part import Part, leaves_idle_alone, take_part

__all__ = ["Setup", "Watcher", "Work", "narrowed", "part_shown", "work_on_part", "work_on_whole"]


@dataclass(frozen=True)
class Setup:
    """What a learner is made of.

    Args:
        model: the whole network.
        method: what is done against forgetting.
        adopt: what the method does with every optimizer of the whole network, if anything.
        optimizer: builds an optimizer from parameters.
        schedule: builds a learning-rate schedule from an optimizer, if any.
    """

    model: nn.Module
    method: Method
    adopt: Adopt | None
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    schedule: Callable[[Optimizer], LRScheduler] | None


@dataclass
class Work:
    """A network being trained.

    Args:
        network: the whole, or a sub-network.
        method: gets the calls of every step.
        context: the one being learned; None before the first.
        optimizer: of the network's parameters.
        schedule: of its learning rate, if any.
        part: the sub-network with its way back into the whole; None if the whole is trained.
        checks_gradients: whether to; obstruction does it by itself.
    """

    network: nn.Module
    method: Method
    context: int | None
    optimizer: Optimizer
    schedule: LRScheduler | None
    part: Part | None = None
    checks_gradients: bool = True
    _written: bool = field(default=True, init=False)  # whether the whole has what was learned

    def step(
        self, loss: Tensor, number: int, processes: Processes, restore: Callable[[], None]
    ) -> None:
        """Learn from a loss.

        Args:
            loss: of a batch, with its graph.
            number: of the step, for messages.
            processes: those that share the batch.
            restore: undoes the forward pass; called if a gradient is not finite, which raises
                FloatingPointError before anything moves.
        """
        loss.backward()
        parameters = _held(self.optimizer)
        average_gradients(processes, parameters)
        try:
            if self.checks_gradients:
                check_gradients(parameters, number)
            self.optimizer.step()
        except FloatingPointError:
            self.optimizer.zero_grad()
            restore()
            raise
        self.optimizer.zero_grad()
        self._written = False
        self.method.stepped(self.network, self.optimizer)
        if self.schedule is not None:
            self.schedule.step()

    def write_back(self) -> None:
        """Put what a sub-network has learned into the whole."""
        if self.part is not None and not self._written:
            self.part.write_back()
            self._written = True


class Watcher(Protocol):
    """Watches whatever network a learner has at work; it must change nothing."""

    def before(self, work: Work, step: int) -> None:
        """The network is about to see a batch, from which it may learn in that step."""

    def after(self, work: Work, step: int) -> None:
        """It has learned from it."""


def narrowed(setup: Setup, optimizer: Optimizer) -> Narrowed | None:
    """The method at work in a sub-network; None if training one would not be exact.

    Args:
        setup: of the learner.
        optimizer: one that it has built.
    """
    exact = gates_of(setup.model) and leaves_idle_alone(optimizer)
    return setup.method.narrowed() if exact else None


def work_on_part(
    setup: Setup, inside: Narrowed, context: int, active: Mapping[str, Tensor] | None = None
) -> Work | None:
    """Train the sub-network of a context; None if it would be no smaller.

    Args:
        setup: of the learner.
        inside: its method at work in a sub-network.
        context: which one.
        active: the units of each site, to go on with a training that began with them.
    """
    gates = gates_of(setup.model)
    assert gates is not None
    cut = cut_for(gates, context, active)
    if not cut.active:
        return None
    part = take_part(gates, cut, inside.keeper)
    optimizer = setup.optimizer(part.network.parameters())
    if inside.keeper is not None:
        inside.keeper.follow(optimizer)
    return _begun(setup, part.network, inside.method, context, optimizer, part)


def work_on_whole(setup: Setup, context: int | None, kept: Optimizer | None = None) -> Work:
    """Train the whole network.

    Args:
        setup: of the learner.
        context: which one, if any yet.
        kept: the optimizer to go on with, if it has all parameters.
    """
    if kept is not None and {*setup.model.parameters()} <= {*_held(kept)}:
        optimizer = kept
    else:
        optimizer = setup.optimizer(setup.model.parameters())
        if setup.adopt is not None:
            setup.adopt(optimizer)
    return _begun(setup, setup.model, setup.method, context, optimizer)


def part_shown(setup: Setup, context: int) -> Part | None:
    """The sub-network of a context, only to be evaluated; None if that of the whole must be."""
    gates = gates_of(setup.model)
    if gates is None or not setup.method.narrowed():
        return None
    cut = cut_for(gates, context)
    if not cut.active:
        return None
    part = take_part(gates, cut, trained=False)
    part.network.eval()
    return part


def _held(optimizer: Optimizer) -> list[nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _begun(
    setup: Setup,
    network: nn.Module,
    method: Method,
    context: int | None,
    optimizer: Optimizer,
    part: Part | None = None,
) -> Work:
    # A kept optimizer still has the rate its last schedule ended with.
    for group in optimizer.param_groups:
        group["lr"] = group.pop("initial_lr", group["lr"])
    schedule = None if setup.schedule is None else setup.schedule(optimizer)
    gates = gates_of(network)
    checks = gates is None or obstruction_of(gates) is None
    return Work(network, method, context, optimizer, schedule, part, checks)
