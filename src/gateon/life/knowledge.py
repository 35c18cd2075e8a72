"""Everything a living model knows, and how it becomes a state and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..detection.recogniser import Recogniser
from .columns import Kind
from .front import Front
from .network import TaskNetwork
from .settings import Settings
from .task import Part, Task

__all__ = ["Held", "Knowledge", "bounded"]

State = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Held:
    """Samples of one task that were never learned, kept to measure on.

    Args:
        x: samples as the network sees them.
        row: of the output layer that each should have.
    """

    x: Tensor
    row: Tensor


@dataclass(eq=False)
class Knowledge:
    """What a living model has learned.

    Args:
        kind: texts, images or features.
        columns: which columns were read first, for `understand(..., like=...)`.
        settings: of the model.
        front: rows to samples.
        network: samples to labels.
        recogniser: samples to tasks.
        tasks: in the order in which they came.
        held: samples to measure on, by task.
    """

    kind: Kind
    columns: dict[str, Any]
    settings: Settings
    front: Front
    network: TaskNetwork
    recogniser: Recogniser
    tasks: list[Task] = field(default_factory=list)
    held: dict[str, Held] = field(default_factory=dict)

    @property
    def parts(self) -> list[Part]:
        """The contexts of all tasks."""
        return [part for task in self.tasks for part in task.parts]

    @property
    def outputs(self) -> int:
        """Rows of the output layer in use: the labels of all contexts."""
        return sum(len(part.rows) for part in self.parts)

    def task(self, name: str) -> Task | None:
        """The task of this name."""
        return next((task for task in self.tasks if task.name == name), None)

    def put(self, task: Task) -> None:
        """Keep a task, replacing the one of the same name."""
        names = [known.name for known in self.tasks]
        if task.name in names:
            self.tasks[names.index(task.name)] = task
        else:
            self.tasks.append(task)

    def about(self) -> State:
        """What can be said without tensors, as JSON."""
        return {
            "kind": self.kind,
            "columns": self.columns,
            "settings": self.settings.state(),
            "front": self.front.state(),
            "tasks": [task.state() for task in self.tasks],
            "shape": list(self.front.shape),
            "inputs": self.recogniser.ridge.inputs,
            "outputs": self.network.outputs,
            "room": self.network.room(),
        }

    def state(self) -> State:
        """Everything, as named parts for `Store`."""
        held = {name: {"x": one.x, "row": one.row} for name, one in self.held.items()}
        return {
            "about": self.about(),
            "network": self.network.state(),
            "recogniser": self.recogniser.state_dict(),
            "held": held,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Knowledge:
        """The knowledge of this state."""
        about = state["about"]
        settings = Settings.from_state(about["settings"])
        recogniser = Recogniser(int(about["inputs"]), settings.features, seed=settings.seed)
        recogniser.load_state_dict(state["recogniser"])
        outputs = int(about["outputs"])
        network = TaskNetwork(about["shape"], settings, outputs, state["network"])
        return cls(
            about["kind"],
            dict(about["columns"]),
            settings,
            Front.from_state(about["front"]),
            network,
            recogniser,
            [Task.from_state(task) for task in about["tasks"]],
            {name: Held(one["x"], one["row"]) for name, one in state["held"].items()},
        )


def bounded(held: Held, most: int, largest: int, order: Tensor) -> Held:
    """At most `most` samples and `largest` bytes, first in order; images in half precision.

    >>> import torch
    >>> few = Held(torch.ones(4, 1, 2, 2), torch.arange(4))
    >>> bounded(few, 3, 16, torch.tensor([3, 2, 1, 0])).row
    tensor([3, 2])
    """
    x = held.x.half() if held.x.dim() > 2 else held.x
    each = max(1, x[0].numel() * x.element_size()) if len(x) else 1
    chosen = order[: min(most, largest // each)]
    return Held(x[chosen], held.row[chosen])
