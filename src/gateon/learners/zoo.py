"""Model Zoo: an ensemble of small networks, each trained on a new task and a few old ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..anatomy.contextual import as_context, show_context
from ..anatomy.norm import follow_norms, kept_statistics
from ..detection.infer import Observation
from ..methods.base import Outline
from ..methods.shared.calls import logits, moved
from ..methods.shared.calls import outputs as outputs_of
from ..storage.states import (
    COUNT,
    GENERATOR,
    Inputs,
    Rule,
    Whole,
    batch_like,
    check,
    check_fits,
    grown,
    load_optimizer,
    optimizer_like,
    schedule_like,
)
from .protocol import check_finite, described
from .training import tell

__all__ = ["Zoo"]

BATCH = 2000  # samples evaluated at once


@dataclass
class _Member:
    """A network and the tasks it has seen; task tasks[h] has head h."""

    network: nn.Module
    tasks: list[int]


class Zoo:
    """Adds a network at every switch; a task is predicted by all networks that have seen it.

    The network of a round is trained on the new task and on up to `tasks` - 1 old ones, drawn
    without replacement with probabilities proportional to exp((L_i - mean L) / mean L), where L_i
    is the zoo's loss on the stored data of task i: boosting. A step takes the current batch and as
    many stored samples of each old task in the round, all weighted equally. A prediction is the
    mean of the softmax outputs of the networks that saw the task.

    Ramesh and Chaudhari, "Model Zoo: A growing brain that learns continually", ICLR 2022. There
    images are also cropped at random.

    Args:
        make: builds a new network; with `TaskHeads` every task of a round has a head of its own.
        optimizer: builds an optimizer from parameters; SGD with Nesterov momentum 0.9, rate 0.01
            and decay 1e-5 in the publication.
        schedule: builds a learning-rate schedule from an optimizer, if any; a cosine to zero in the
            publication.
        loss: a function of outputs and labels.
        tasks: number of tasks in a round, including the new one.
        keep: number of samples stored per task; None keeps all.
        seed: of the networks, of the tasks and samples drawn.

    >>> from functools import partial
    >>> from gateon.networks.heads import TaskHeads
    >>> make = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), TaskHeads(8, 2))
    >>> zoo = Zoo(make, optimizer=partial(torch.optim.SGD, lr=0.1))
    >>> x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
    >>> for k in range(3):
    ...     _ = zoo.observe(x, y, context=k)
    ...     zoo.end_task(k, [(x, y)])
    >>> zoo.rounds, zoo.predict(x, context=0).shape
    ([[0], [0, 1], [0, 1, 2]], torch.Size([8, 2]))
    """

    name = "zoo"
    replay = True
    label_at_test = True
    separate = False
    contexts = None  # they are given

    def __init__(
        self,
        make: Callable[[], nn.Module],
        *,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
        schedule: Callable[[Optimizer], LRScheduler] | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
        tasks: int = 5,
        keep: int | None = None,
        seed: int = 0,
    ) -> None:
        if tasks < 1 or (keep is not None and keep < 1):
            raise ValueError(f"tasks and keep must be at least 1, got {tasks} and {keep}.")
        self.loss, self.tasks, self.keep, self.seed = loss, tasks, keep, seed
        self.context: int | None = None
        self.step = 0
        self._make, self._new_optimizer, self._new_schedule = make, optimizer, schedule
        self._generator = torch.Generator().manual_seed(seed)
        self.stored: dict[int, tuple[Tensor, Tensor]] = {}
        self._members: list[_Member] = []
        network = self.new_network(0)
        settings = {"kind": "Zoo", "tasks": tasks, "keep": keep, "seed": seed}
        self._renew_optimizer(network)
        self.description = described(network, settings, schedule, loss, self.optimizer)

    @property
    def rounds(self) -> list[list[int]]:
        """The tasks that each network has seen."""
        return [sorted(member.tasks) for member in self._members]

    @property
    def model(self) -> nn.Module:
        """All networks; before the first task, one as they will be."""
        return nn.ModuleList([member.network for member in self._members] or [self.new_network(0)])

    def expect(self, outline: Outline) -> None:
        """Announce the next task before it begins."""
        tell(outline, self._new_schedule, self.loss)

    def observe(self, x: Tensor, y: Tensor, context: int | None = None) -> Observation:
        """Learn one batch, with stored samples of the round's old tasks."""
        if context is None:
            raise ValueError("Say which context the batch belongs to: a zoo is told its tasks.")
        if not y.numel():
            raise ValueError("The batch is empty: leave it out.")
        switched = self.switch(context)
        member = self._members[-1]
        network = member.network.train()
        drawn, restores, losses = self._generator.get_state(), [], []
        for head, task in enumerate(member.tasks):
            show_context(network, head)
            restores.append(kept_statistics(network))
            some_x, some_y = (x, y) if task == context else self._some(task, len(y))
            outputs = logits(network, moved(some_x, network))
            losses.append(self.loss(outputs, some_y.to(outputs.device)))
        loss = torch.stack(losses).mean()

        def restore() -> None:
            for put_back in reversed(restores):
                put_back()
            self._generator.set_state(drawn)

        check_finite(loss.item(), self.step, context, restore)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.schedule is not None:
            self.schedule.step()
        self.step += 1
        return Observation(loss.item(), context, switched)

    @torch.no_grad()
    def predict(self, x: Tensor, context: int | None = None) -> Tensor:
        """Log of the mean probabilities of the networks that saw the task."""
        task = self.context if context is None else context
        seen = [member for member in self._members if task in member.tasks]
        if task is None or not seen:
            raise IndexError(f"No network has seen context {task}: learn it first.")
        probabilities = []
        for member in seen:
            show_context(member.network, member.tasks.index(task))
            member.network.eval()
            probabilities.append(torch.softmax(outputs_of(member.network, x), 1).cpu())
        return torch.stack(probabilities).mean(0).clamp_min(torch.finfo(torch.float32).tiny).log()

    def end_task(self, task: int, data: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Store the task's data."""
        batches = list(data)
        if self.context is None or not batches:
            raise ValueError(
                "end_task must be called after the task was learned, with its data, which Model "
                "Zoo stores for later rounds."
            )
        x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
        if self.keep is not None and self.keep < len(y):
            rows = torch.randperm(len(y), generator=self._generator)[: self.keep]
            x, y = x[rows], y[rows]
        self.stored[self.context] = x, y

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume learning."""
        return {
            "members": [
                {"tasks": member.tasks, "network": member.network.state_dict()}
                for member in self._members
            ],
            "stored": [{"task": task, "x": x, "y": y} for task, (x, y) in self.stored.items()],
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "step": self.step,
            "context": self.context,
            "drawn": self._generator.get_state(),
            "generator": torch.get_rng_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> None:
        """Resume exactly where the state was taken; change nothing if it does not fit."""
        check_fits(state, partial(self.state_like, inputs=inputs))
        self._members = []
        for n, member in enumerate(state["members"]):
            self._add(_Member(self.new_network(n), list(member["tasks"])))
            self._members[-1].network.load_state_dict(member["network"])
        self.stored = {part["task"]: (part["x"], part["y"]) for part in state["stored"]}
        self.step, self.context = state["step"], state["context"]
        load_optimizer(self.optimizer, state["optimizer"])
        if self.schedule is not None and state["schedule"] is not None:
            self.schedule.load_state_dict(state["schedule"])
        self._generator.set_state(state["drawn"])
        torch.set_rng_state(state["generator"])

    def state_like(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> dict[str, Any]:
        """A template of the states that fit; see `gateon.storage.states`."""
        for name in ("members", "stored"):
            check(state[name], Rule(_are_tables, "be a list of tables"), name)
        blank, of_round = self.new_network(0), Rule(_are_tasks, "be tasks, each once")
        networks = [grown(blank, member["network"]) for member in state["members"]]
        stored = [
            dict(zip(("x", "y"), batch_like(part["x"], part["y"], inputs), strict=True))
            for part in state["stored"]
        ]
        last = networks[-1] if networks else grown(blank, blank.state_dict())
        rounds = [member["tasks"] for member in state["members"]]
        known = {part["task"] for part in state["stored"]}
        for tasks, network in zip(rounds, networks, strict=True):
            check(tasks, of_round, "members tasks")
            check(len(tasks), Whole(1, network.context.high + 1), "members tasks")
        if rounds and (rounds[-1][-1] != state["context"] or not known.issuperset(rounds[-1][:-1])):
            raise ValueError("the last member must learn the context, and tasks that are stored")
        return {
            "members": [{"tasks": of_round, "network": network.state} for network in networks],
            "stored": [{"task": COUNT, **part} for part in stored],
            "optimizer": optimizer_like(
                self._new_optimizer,
                list(last.parameters.values()),
                self.optimizer.param_groups,
                state["optimizer"],
            ),
            "schedule": schedule_like(self.schedule),
            "step": COUNT,
            "context": COUNT if rounds else None,
            "drawn": GENERATOR,
            "generator": GENERATOR,
        }

    def switch(self, context: int) -> bool:
        """Begin a round with a new network, unless this context is being learned already."""
        context = as_context(context)
        if context == self.context:
            return False
        old = [task for task in self.stored if task != context]
        draws = min(self.tasks - 1, len(old))
        drawn = (
            torch.multinomial(self._weights(old), draws, generator=self._generator).tolist()
            if draws
            else []
        )
        self._add(
            _Member(self.new_network(len(self._members)), [old[i] for i in drawn] + [context])
        )
        self.context = context
        return True

    def _add(self, member: _Member) -> None:
        # every head exists before the optimizer
        show_context(member.network, len(member.tasks) - 1)
        self._members.append(member)
        self._renew_optimizer(member.network)

    def _renew_optimizer(self, network: nn.Module) -> None:
        self.optimizer = self._new_optimizer(network.parameters())
        self.schedule = None if self._new_schedule is None else self._new_schedule(self.optimizer)

    def new_network(self, n: int = 0) -> nn.Module:
        """The n-th network; drawing it leaves torch's random generator unchanged."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(np.random.SeedSequence((self.seed, n)).generate_state(1)[0]))
            network = self._make()
        follow_norms(network)
        return network

    def _weights(self, tasks: list[int]) -> Tensor:
        """exp((L_i - mean L) / mean L) of each task, L the zoo's loss on what is stored of it."""
        losses = torch.tensor([self._stored_loss(task) for task in tasks])
        mean = losses.mean().clamp_min(torch.finfo(losses.dtype).tiny)
        return ((losses - mean) / mean).exp().clamp(1e-4, 1e3)

    def _stored_loss(self, task: int) -> float:
        x, y = self.stored[task]
        parts = zip(x.split(BATCH), y.split(BATCH), strict=True)
        return sum(
            F.nll_loss(self.predict(a, task), b, reduction="sum").item() for a, b in parts
        ) / len(y)

    def _some(self, task: int, n: int) -> tuple[Tensor, Tensor]:
        x, y = self.stored[task]
        rows = torch.randint(len(y), (n,), generator=self._generator)
        return x[rows], y[rows]


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, dict) for part in value)


def _are_tasks(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(type(task) is int and task >= 0 for task in value)
        and len(set(value)) == len(value) > 0
    )
