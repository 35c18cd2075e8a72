"""Streams made of another stream: tasks that return, and boundaries that blur."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .base import Part, Split, Stream, Task, whole
from .draw import permutation, uniform

__all__ = ["blurred", "recurring"]


def recurring(
    stream: Stream, order: Sequence[int] | None = None, *, repeats: int | None = None
) -> Stream:
    """The tasks of a stream in any order and as often as wanted; a task that returns keeps its `identity`.

    Args:
        stream: any stream with sharp boundaries (blur last).
        order: the tasks' numbers in the order of their presentation.
        repeats: instead of an order: how often the whole stream is repeated.

    >>> from gateon import streams
    >>> stream = recurring(streams.permuted_mnist(tasks=2, data="mnist-5k"), [0, 1, 0])
    >>> [(task.name, task.identity) for task in stream]
    [('plain', 0), ('permutation 1', 1), ('plain', 0)]
    """
    _refuse_blurred(stream)
    if (order is None) == (repeats is None):
        raise ValueError(
            "Tasks return either in an order or so many times: give one of order and repeats."
        )
    turns = (
        list(order)
        if order is not None
        else list(range(len(stream))) * whole("repeats", repeats or 0, least=1)
    )
    turns = [whole("A task's number in the order", turn, least=0) for turn in turns]
    if not turns or max(turns) >= len(stream):
        raise ValueError(
            f"The order must name tasks 0 to {len(stream) - 1}, at least one, got {turns}."
        )
    named = stream.labels or (lambda k: ())
    return Stream(
        name=f"recurring {stream.name}",
        tasks=len(turns),
        classes=stream.classes,
        shape=stream.shape,
        settings={"stream": "recurring", "of": stream.settings, "order": turns},
        source=stream.source,
        make=lambda k: stream[turns[k]],
        make_split=lambda k, part: stream.split(turns[k], part),
        augment=stream.augment,
        labels=None if stream.labels is None else lambda k: named(turns[k]),
    )


def blurred(stream: Stream, width: float = 0.2, seed: int = 0) -> Stream:
    """The same stream without sharp boundaries: near a boundary the batches mix two tasks.

    A task's training data come in the order of their presentation (`ordered`). In the last and the
    first width/2 of two neighbours the chance that a sample is the later one's rises evenly from 0
    to 1. Every sample is presented exactly once in the stream, and every task keeps its number of
    them; `origin` tells the task each came from. Validation and test data stay those of the task
    alone.

    Args:
        stream: any stream with sharp boundaries.
        width: the share of a task's training samples that lies in blurred stretches, above 0 and at
            most 1.
        seed: draws the order within a task and what is mixed where.

    >>> from gateon import streams
    >>> task = blurred(streams.rotated_mnist(tasks=3, data="mnist-5k"), width=0.5)[1]
    >>> task.train.ordered, sorted(set(task.train.origin.tolist()))
    (True, [0, 1, 2])
    >>> task.train.origin[1000:2500].unique()
    tensor([1])
    """
    _refuse_blurred(stream)
    if not 0 < width <= 1:
        raise ValueError(f"width must be above 0 and at most 1, got {width}.")
    seed = whole("seed", seed, least=0)

    def order(count: int, k: int) -> NDArray[np.int64]:
        return permutation(count, seed, "blurred order", k)

    def presented(task: Task, k: int) -> Split:
        rows = torch.from_numpy(order(len(task.train), k))
        return Split(
            task.train.x[rows], task.train.y[rows], True, torch.full((len(rows),), task.identity)
        )

    def blur(split: Split, k: int) -> Split:
        """Mix the ends of task k's training data with its neighbours', which present as many of its
        own."""
        count = len(split)
        if k > 0:
            before = stream[k - 1]
            size = int(width / 2 * min(count, len(before.train)))
            seam = _seam(size, seed, k - 1)
            gone = int(seam[:size].sum())
            late = order(len(before.train), k - 1)[len(before.train) - gone :]
            _mix(split, slice(size), slice(gone, size), seam[size:], before, late)
            del before  # one neighbour in memory at a time
        if k < len(stream) - 1:
            after = stream[k + 1]
            size = int(width / 2 * min(count, len(after.train)))
            seam = _seam(size, seed, k)
            gone = int(seam[:size].sum())
            early = order(len(after.train), k + 1)[:gone]
            _mix(
                split,
                slice(count - size, count),
                slice(count - size, count - gone),
                ~seam[:size],
                after,
                early,
            )
        return split

    def make(k: int) -> Task:
        task = stream[k]
        name, identity, validation, test, train = (
            task.name,
            task.identity,
            task.validation,
            task.test,
            presented(task, k),
        )
        del task  # its training data are copied: make room for the neighbours'
        return Task(name, blur(train, k), validation, test, identity)

    def make_split(k: int, part: Part) -> Split:
        return blur(presented(stream[k], k), k) if part == "train" else stream.split(k, part)

    return Stream(
        name=f"blurred {stream.name}",
        tasks=stream.tasks,
        classes=stream.classes,
        shape=stream.shape,
        settings={"stream": "blurred", "of": stream.settings, "width": float(width), "seed": seed},
        source=stream.source,
        make=make,
        make_split=make_split,
        augment=stream.augment,
        labels=stream.labels,
    )


def _seam(size: int, seed: int, k: int) -> NDArray[np.bool_]:
    """Which of the 2 * size places about the boundary of tasks k and k+1 are the later one's: half, mostly late."""
    place = (np.arange(2 * size) + 0.5) / max(2 * size, 1)
    later = np.zeros(2 * size, np.bool_)
    later[np.argsort(uniform(2 * size, seed, "blurred seam", k) - place, kind="stable")[:size]] = (
        True
    )
    return later


def _mix(
    mixed: Split,
    zone: slice,
    own: slice,
    is_own: NDArray[np.bool_],
    other: Task,
    others: NDArray[np.int64],
) -> None:
    """Fill a zone of the presentation with a task's own samples, in their order, and rows of another task."""
    mask, rows = torch.from_numpy(is_own), torch.from_numpy(others)
    assert mixed.origin is not None
    lent: tuple[Tensor | int, ...] = (other.train.x[rows], other.train.y[rows], other.identity)
    for target, foreign in zip((mixed.x, mixed.y, mixed.origin), lent, strict=True):
        kept = target[own].clone()
        view = target[zone]
        view[mask] = kept
        view[~mask] = foreign


def _refuse_blurred(stream: Stream) -> None:
    if stream.settings.get("stream") == "blurred":
        raise ValueError(
            f"{stream.name} is blurred already: let tasks return first, then blur once."
        )
