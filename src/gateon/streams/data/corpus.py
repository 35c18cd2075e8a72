"""Labelled texts, task by task, before they are tokenised."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..draw import permutation
from ..parts import Part

__all__ = ["Corpus", "Example", "Parts", "dealt"]


class Example(NamedTuple):
    """A text, maybe a second one beside it, and its label."""

    text: str
    second: str | None
    label: int


Parts = dict[Part, list[Example]]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Labelled texts.

    Args:
        tasks: by name, the examples of each part.
        classes: what labels 0, 1, ... mean, the same in all tasks; None where every task has its
            own.
        source: as that of a stream.
        orders: published orders of the tasks' names.
        empty: how many texts were left out since nothing was in them.
    """

    tasks: dict[str, Parts]
    classes: list[str] | None
    source: dict[str, Any]
    orders: list[list[str]] = field(default_factory=list)
    empty: int = 0


def dealt(
    count: int, test: int, validation: int, seed: int, *key: str | int
) -> dict[Part, list[int]]:
    """Rows to train, to validate and to test: one in so many each (0: none), at least one."""
    order = permutation(count, seed, *key)
    held = [max(count // share, 1) if share else 0 for share in (test, validation)]
    test_rows, validation_rows, train_rows = (
        np.sort(rows).tolist() for rows in np.split(order, [held[0], sum(held)])
    )
    return {"train": train_rows, "validation": validation_rows, "test": test_rows}
