"""Which rows make each batch of a task, and how many batches it has."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..learners.training import Outline
from ..streams import Split, Stream, by_length

__all__ = ["batches", "outline", "steps_of"]


def steps_of(stream: Stream, batch: int, steps: int, epochs: int | None) -> list[int]:
    """The number of batches of every task: `steps`, or what `epochs` passes over its samples take.

    >>> from gateon import streams
    >>> steps_of(streams.split_mnist(data="mnist-5k"), batch=500, steps=9, epochs=2)
    [4, 4, 4, 4, 4]
    """
    if epochs is None:
        return [steps] * len(stream)
    return [epochs * math.ceil(len(stream.split(k, "train")) / batch) for k in range(len(stream))]


def outline(split: Split, classes: int, steps: int, epochs: int | None) -> Outline:
    """What is known of a task beforehand; without epochs the whole task counts as one pass."""
    counts = torch.bincount(split.y, minlength=classes).tolist()
    return Outline(steps, steps // (epochs or 1), tuple(int(count) for count in counts))


def batches(
    split: Split, size: int, steps: int, seed: tuple[int, ...], start: int, *, whole: bool = False
) -> Iterator[Tensor]:
    """Row indices of each batch from step `start` on: epochs without replacement.

    Where the order of the samples is time, they pass once instead. Texts of a batch are of similar
    length, so that little of it is padding. Step s depends on the seed and s alone, so that a run
    can be resumed at any step.

    Args:
        split: the samples.
        size: of a batch.
        steps: batches in all.
        seed: of the order, a tuple of numbers.
        start: the first step that is wanted.
        whole: an epoch has every row: its last batch may be smaller. Otherwise the rows that do not
            fill a batch are left out.
    """
    rows = len(split)
    if split.ordered:
        for step in range(start, steps):
            yield torch.arange(step * size, (step + 1) * size) * rows // (steps * size)
        return
    an_epoch = math.ceil(rows / size) if whole else rows // size
    order: tuple[int, Tensor] | None = None
    for step in range(start, steps):
        epoch, place = divmod(step, an_epoch)
        if order is None or order[0] != epoch:
            mixed = torch.from_numpy(np.random.default_rng((*seed, epoch)).permutation(rows))
            order = (
                epoch,
                mixed
                if split.lengths is None
                else by_length(mixed, split.lengths, size, (*seed, epoch)),
            )
        yield order[1][place * size : (place + 1) * size]
