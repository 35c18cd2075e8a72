"""Names, needs and options of the methods that have a learner of their own: `gateon.learners`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from .base import Method

__all__ = ["InIsolation", "InLamol", "InZoo"]


@dataclass
class InIsolation(Method):
    """A new network for every task: nothing is done against forgetting."""

    name = "isolated"
    label_at_test = True


@dataclass
class InZoo(Method):
    """An ensemble of networks, each trained on the new task and some old ones.

    Args:
        tasks: number of tasks trained together in a round, including the new one.
        memory: number of samples stored per task; none for all.
    """

    tasks: int = 5
    memory: int | None = None

    name = "zoo"
    replay = True
    label_at_test = True


@dataclass
class InLamol(Method):
    """Past tasks are learned again from texts that the model writes; no data are stored."""

    name = "lamol"
    replay = True
    label_at_test = True

    def prepare(self, model: nn.Module) -> None:
        """Refuse a Learner, which would only fine-tune."""
        raise ValueError(
            "LAMOL learns with a learner of its own and a causal language model: "
            "use gateon.learners.lamol.Lamol."
        )
