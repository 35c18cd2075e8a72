"""What a stream is: an ordered sequence of tasks, each made when it is asked for and never kept."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from operator import index
from typing import Annotated, Any, cast

from torch import Tensor

from ..options.kinds import Within
from .parts import PARTS, Part

__all__ = ["PARTS", "Part", "Split", "Stream", "Task", "Tasks", "assemble", "whole"]

Tasks = Annotated[int, Within(1, 10**6)]


@dataclass(frozen=True, eq=False)
class Split:
    """Inputs and labels.

    Args:
        x: images (N, C, H, W), in [0, 1] or with normalised channels, or rows of features (N, F),
            float32; of texts the token ids (N, L), int64, padded at the right.
        y: labels (N), int64.
        ordered: the order of the rows is time: present them as they come, do not shuffle. A learner
            that takes more or fewer samples than there are rows stretches it (sample j of J is row
            j * N // J), so that time passes once.
        origin: for rows that come from several tasks the `identity` of each (N), int64; None: all
            come from this task.
        lengths: of texts, how many tokens of each row are no padding (N), int64; None for other
            inputs.
    """

    x: Tensor
    y: Tensor
    ordered: bool = False
    origin: Tensor | None = None
    lengths: Tensor | None = None

    def __len__(self) -> int:
        """How many rows."""
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Task:
    """One task of a stream.

    Args:
        name: what it is, for people.
        train, validation, test: its data; validation is held out of train.
        identity: which task it is underneath: a task that returns has the identity it had before.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    identity: int


@dataclass(frozen=True, eq=False)
class Stream:
    """An ordered sequence of tasks: `len(stream)`, `stream[3]`, `for task in stream`.

    Args:
        name: as on the command line.
        tasks: how many there are.
        classes: how many outputs a network needs.
        shape: of one input, (C, H, W), (F,) or, of texts, (L,).
        settings: all that `streams.remake` needs to make it again, JSON-able.
        source: the data set underneath: name, from, sha256 of its arrays, licence, embedded.
        make: makes task k.
        make_split: makes one split of task k; without it the whole task is made and the rest
            dropped.
        augment: varies the inputs of a training batch before it is learned; the key (seed, task,
            step) decides how.
        labels: what labels 0, 1, ... of task k are called, where they have names.

    >>> from gateon import streams
    >>> stream = streams.permuted_mnist(tasks=3, seed=0, data="mnist-5k")
    >>> len(stream), stream.classes, stream.shape, stream[2].train.x.shape
    (3, 10, (1, 28, 28), torch.Size([3667, 1, 28, 28]))
    """

    name: str
    tasks: int
    classes: int
    shape: tuple[int, ...]
    settings: dict[str, Any]
    source: dict[str, Any]
    make: Callable[[int], Task]
    make_split: Callable[[int, Part], Split] | None = None
    augment: Callable[[Tensor, tuple[int, ...]], Tensor] | None = None
    labels: Callable[[int], Sequence[str]] | None = None

    def __len__(self) -> int:
        """How many tasks."""
        return self.tasks

    def __getitem__(self, k: int) -> Task:
        """Task k, made now."""
        return self.make(self._existing(k))

    def __iter__(self) -> Iterator[Task]:
        """One task after another, each made when its turn comes."""
        return (self.make(k) for k in range(self.tasks))

    def split(self, k: int, part: Part) -> Split:
        """One split of task k, without making the others, to test past tasks."""
        if part not in PARTS:
            raise ValueError(f"A task has no part {part!r}: choose train, validation or test.")
        k = self._existing(k)
        return (
            self.make_split(k, part)
            if self.make_split
            else cast(Split, getattr(self.make(k), part))
        )

    def fingerprint(self, k: int) -> str:
        """The sha256 of task k's data: shapes, inputs, labels and whether their order is time."""
        digest = sha256()
        task = self[k]
        for part in PARTS:
            split: Split = getattr(task, part)
            digest.update(
                f"{part} {tuple(split.x.shape)} {'ordered' if split.ordered else ''}".encode()
            )
            for tensor in (split.x, split.y):
                kind = "<f4" if tensor.is_floating_point() else "<i8"
                digest.update(tensor.contiguous().numpy().astype(kind, copy=False).data)
        return digest.hexdigest()

    def _existing(self, k: int) -> int:
        if not -self.tasks <= k < self.tasks:
            raise IndexError(
                f"Task {k} does not exist: {self.name} has tasks 0 to {self.tasks - 1}."
            )
        return k % self.tasks


def assemble(name: str, identity: int, split: Callable[[Part], Split]) -> Task:
    """A task from a function that makes its splits.

    >>> import torch
    >>> empty = Split(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
    >>> task = assemble("empty", 0, lambda part: empty)
    >>> task.name, len(task.test)
    ('empty', 0)
    """
    return Task(name, split("train"), split("validation"), split("test"), identity)


def whole(name: str, value: int, least: int) -> int:
    """The value as a plain int, or an error that names it.

    >>> whole("tasks", 0, least=1)
    Traceback (most recent call last):
    ...
    ValueError: tasks must be a whole number of at least 1, got 0.
    """
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return number
