"""Samples kept of past tasks: which ones, and how batches are drawn from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...storage.states import Grown, batch_like

__all__ = ["Balance", "Memory", "Samples", "gathered", "joined", "picked", "seeded"]

Balance = Literal["reservoir", "class", "task"]


@dataclass
class Samples:
    """Samples of one task, each with a random number that decides how long it is kept."""

    x: Any
    y: Tensor
    key: Tensor
    context: int | None = None

    def at(self, rows: Tensor) -> Samples:
        """Some of them."""
        return Samples(picked(self.x, rows), self.y[rows], self.key[rows], self.context)


def picked(x: Any, rows: Tensor) -> Any:
    """Some rows of one tensor, or of each of several.

    >>> picked({"ids": torch.arange(3)}, torch.tensor([2, 0]))
    {'ids': tensor([2, 0])}
    """
    return {name: value[rows] for name, value in x.items()} if isinstance(x, Mapping) else x[rows]


def joined(parts: list[Any]) -> Any:
    """Rows one after another."""
    first = parts[0]
    return (
        {name: torch.cat([part[name] for part in parts]) for name in first}
        if isinstance(first, Mapping)
        else torch.cat(parts)
    )


def seeded(*numbers: int) -> torch.Generator:
    """A generator of its own for every sequence of numbers, such as a seed, a task and a step.

    >>> seeded(0, 1).initial_seed() == seeded(1, 0).initial_seed()
    False
    """
    # PyTorch's generator takes 32 bits: they are mixed here, not shifted.
    return torch.Generator().manual_seed(int(np.random.SeedSequence(numbers).generate_state(1)[0]))


def gathered(
    data: Iterable[tuple[Any, Tensor]],
    task: int,
    generator: torch.Generator,
    context: int | None = None,
) -> Samples:
    """All batches of a task as one, each sample with its random number."""
    batches = [(x, y) for x, y in data if len(y)]
    if not batches:
        raise ValueError(
            f"Task {task} ended without data to look back on: "
            "give end_task the batches of its training data."
        )
    y = torch.cat([labels for _, labels in batches])
    key = torch.rand(len(y), generator=generator, dtype=torch.float64)
    return Samples(joined([x for x, _ in batches]), y, key, context)


@dataclass
class Memory:
    """At most so many samples of all tasks seen, each kept or not by its random number.

    "reservoir" keeps those with the smallest numbers: a uniform choice of everything seen. "class"
    and "task" rank the numbers within each class or task and keep the smallest ranks: as many of
    each as there is room and there are samples.

    Args:
        size: how many; None keeps everything.
        balance: over what the room is shared.

    >>> memory = Memory(10, "class")
    >>> batches = [(torch.zeros(100, 3), torch.arange(100) % 5)]
    >>> memory.add(gathered(batches, 0, torch.Generator().manual_seed(0)))
    >>> torch.cat([part.y for part in memory.parts]).bincount()
    tensor([2, 2, 2, 2, 2])
    """

    size: int | None
    balance: Balance = "reservoir"
    parts: list[Samples] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Validate size and balance."""
        if self.size is not None and (
            isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1
        ):
            raise ValueError(f"memory must be a whole number of at least 1, got {self.size!r}.")
        if self.balance not in ("reservoir", "class", "task"):
            raise ValueError(
                f'balance must be "reservoir", "class" or "task", got {self.balance!r}.'
            )

    def __len__(self) -> int:
        """How many there are."""
        return sum(len(part.y) for part in self.parts)

    def add(self, new: Samples) -> None:
        """Take in a task; what there is no room for is dropped."""
        self.parts.append(new)
        if self.size is None or len(self) <= self.size:
            return
        key = torch.cat([part.key for part in self.parts])
        kept = _smallest_ranks(key, self._groups(), self.size)
        lengths = [len(part.y) for part in self.parts]
        self.parts = [
            part.at(mask.nonzero()[:, 0])
            for part, mask in zip(self.parts, kept.split(lengths), strict=True)
        ]

    def draw(self, count: int, generator: torch.Generator) -> list[Samples]:
        """So many samples, each as likely as any other, with replacement; by task."""
        rows = torch.randint(len(self), (count,), generator=generator)
        found, start = [], 0
        for part in self.parts:
            here = rows[(rows >= start) & (rows < start + len(part.y))] - start
            if len(here):
                found.append(part.at(here))
            start += len(part.y)
        return found

    def state_dict(self) -> dict[str, Any]:
        """The samples."""
        return {
            "parts": [
                {"x": part.x, "y": part.y, "key": part.key, "context": part.context}
                for part in self.parts
            ]
        }

    def state_like(self, state: Any, model: Grown) -> dict[str, Any]:
        """Parts with inputs, labels, and a number and maybe a context each."""
        parts = []
        for part in state["parts"]:
            x, y = batch_like(part["x"], part["y"], model.inputs)
            context = None if part["context"] is None else model.context
            parts.append(
                {
                    "x": x,
                    "y": y,
                    "key": torch.empty(len(part["y"]), dtype=torch.float64, device="meta"),
                    "context": context,
                }
            )
        return {"parts": parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.parts = [
            Samples(part["x"], part["y"], part["key"], part["context"]) for part in state["parts"]
        ]

    def _groups(self) -> Tensor:
        if self.balance == "class":
            return torch.cat([part.y for part in self.parts])
        parts = [
            torch.full_like(part.y, k if self.balance == "task" else 0)
            for k, part in enumerate(self.parts)
        ]
        return torch.cat(parts)


def _smallest_ranks(key: Tensor, group: Tensor, count: int) -> Tensor:
    """A mask of the `count` smallest ranks within groups; of equal ranks, the smaller keys."""
    order = key.argsort(stable=True)
    order = order[group[order].argsort(stable=True)]  # by group, and by number within it
    sizes = group.unique(return_counts=True)[1]
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(key)) - first)
    by_number = key.argsort(stable=True)
    best = by_number[rank[by_number].argsort(stable=True)][:count]
    return torch.zeros(len(key), dtype=torch.bool).index_fill_(0, best, True)
