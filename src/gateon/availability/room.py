"""Freezing that looks after the room: every task takes the same share of what is left.

Instead of a fixed rate, each layer has a goal for the sum of its availabilities, T steps into which
a task is t steps (eq. room):

    sum A = R (1 - s)^(t / T)

R is the sum at the last switch and s the share of a task. What is above the goal is taken from
units or parameters in proportion to A mu, so neither the scale of relevance nor the density of a
sub-network matters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["Pace", "goal", "share", "tasks_left", "usual_density"]

SPARE = 0.15  # of the room at first: left after the last of the tasks expected
# What is expected where nobody says. A first task that is longer freezes more than its share, at
# most its own sub-network.
TASKS, STEPS = 20, 100


def share(tasks: int | None) -> float:
    """s, the share of the room left that a task takes: after all of them SPARE is left.

    Args:
        tasks: How many are expected in all; None for the usual number.

    >>> [round(share(tasks), 4) for tasks in (10, 1000, None)]
    [0.1728, 0.0019, 0.0905]
    """
    return float(1 - SPARE ** (1 / (tasks or TASKS)))


def usual_density(tasks: int | None) -> float:
    """The share of units to open in a task: 0.57 sqrt(s).

    A task's weights between two hidden layers are the square of it; so they grow in number as the
    share of the room that it takes. The factor measured best on validation data.

    Args:
        tasks: How many are expected in all; None if nobody knows.

    >>> [round(usual_density(tasks), 3) for tasks in (10, 60, 1000, None)]
    [0.237, 0.101, 0.025, 0.171]
    """
    return 0.57 * math.sqrt(share(tasks))


def goal(inside: float, room: float, share: float, progress: float) -> float:
    """The sum of availabilities that a part of a layer is to have by now (eq. room).

    The part is the sub-network at work, and takes the share of the whole layer.

    Args:
        inside: The sum over the part at the last switch.
        room: R, the sum over the layer at the last switch.
        share: s.
        progress: t / T, how much of the task is done.

    >>> goal(100.0, 100.0, share=0.19, progress=0.5)
    90.0
    """
    return inside - room * float(1 - (1 - share) ** progress)


def tasks_left(room: float, tasks: int, full: float = 0.05) -> float:
    """How many more tasks fit before the mean availability of a layer falls below `full`.

    Every task takes about the same share of what is left, so that the room after n tasks is r^n.

    Args:
        room: The mean availability now.
        tasks: n, how many have been learned.
        full: The mean availability of a layer that is full.

    >>> round(tasks_left(0.25, tasks=10), 1), tasks_left(1.0, tasks=0)
    (11.6, inf)
    """
    if room <= full:
        return 0.0
    if room >= 1 or not tasks:
        return math.inf
    return tasks * math.log(full / room) / math.log(room)


class Pace:
    """How long tasks are, how many come, and how far the current one is.

    A task is a stay in a context, from one switch to the next.

    >>> pace = Pace()
    >>> pace.expect(steps=80, tasks=60); pace.step()
    >>> pace.after_step(gather_after=0.0)
    0.025
    """

    def __init__(self) -> None:
        self.done, self.last, self.learned = 0, 0, 0
        self.steps: int | None = None
        self.tasks: int | None = None
        self._coming: tuple[int | None, int | None] = (None, None)

    def expect(self, steps: int | None = None, tasks: int | None = None) -> None:
        """Announce the next task: its steps, and how many tasks there are in all."""
        self._coming = steps, tasks
        if not self.done:
            self.steps, self.tasks = self._coming

    def step(self) -> None:
        """Count a step."""
        self.done += 1

    def switch(self) -> None:
        """End the task, if it has begun."""
        self.learned += self.done > 0
        self.last, self.done = self.done or self.last, 0
        self.steps, self.tasks = self._coming

    @property
    def share(self) -> float:
        """s of the current task."""
        return share(self.tasks)

    def after_step(self, gather_after: float) -> float:
        """t / T once the current step is done, of the part of the task that counts.

        Args:
            gather_after: The share of a task that does not count.
        """
        through = (self.done + 1) / (self.steps or self.last or STEPS)
        return max(through - gather_after, 0.0) / (1 - gather_after)

    def state(self) -> Tensor:
        """Everything, as numbers; -1 for what is unknown."""
        known = (self.done, self.last, self.learned, self.steps, self.tasks, *self._coming)
        return torch.tensor([-1 if n is None else n for n in known])

    def load(self, state: Tensor) -> None:
        """Restore what `state` returned."""
        self.done, self.last, self.learned, *rest = state.tolist()
        self.steps, self.tasks, *coming = (None if n < 0 else n for n in rest)
        self._coming = coming[0], coming[1]

    @property
    def so_far(self) -> int:
        """Tasks learned, the current one included if it has begun."""
        return self.learned + (self.done > 0)
