"""CIFAR split over tasks: a few classes of photographs each, labelled within the task, so that one shared head serves all.

Split CIFAR-100 is 20 tasks of 5 classes by default, as in the works it is compared with; the paper
speaks of 20 tasks of class pairs (`classes_per_task=2`).
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..options.kinds import Count
from . import pixels
from .base import Stream, Tasks
from .data import sources
from .data.images import Data, Images, split_classes

__all__ = ["split_cifar10", "split_cifar100"]

# Mean and standard deviation of each channel over the training images, in [0, 1].
CHANNELS = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


def split_cifar100(
    tasks: Tasks = 20,
    seed: int = 0,
    *,
    classes_per_task: Count = 5,
    in_order: bool = False,
    validation: int | None = None,
    data: Data = None,
) -> Stream:
    """Every task has a few of CIFAR-100's classes to tell apart, labelled 0, 1, ... within the task.

    Args:
        tasks: number of tasks. 20 tasks of 5 use up the 100 classes, which are then dealt anew.
        seed: deals the classes to the tasks, and draws the images held out for validation.
        classes_per_task: number of classes per task.
        in_order: use 0 to 4, then 5 to 9 ..., whatever the seed, for no more tasks than the classes
            allow.
        validation: number of training images held out; a twelfth by default.
        data: a data set of the same kind; by default CIFAR-100.
    """
    return split_classes(
        "split-cifar100",
        tasks,
        seed,
        classes_per_task,
        in_order,
        validation,
        data,
        sources.cifar100,
        "classes",
        normalised,
    )


def split_cifar10(
    tasks: Tasks = 5,
    seed: int = 0,
    *,
    classes_per_task: Count = 2,
    in_order: bool = False,
    validation: int | None = None,
    data: Data = None,
) -> Stream:
    """Every task has a few of CIFAR-10's classes to tell apart, labelled 0, 1, ... within the task.

    Args:
        tasks: number of tasks. Five tasks of two use up the ten classes, which are then dealt anew.
        seed: deals the classes to the tasks, and draws the images held out for validation.
        classes_per_task: number of classes per task.
        in_order: use 0 and 1, then 2 and 3 ..., whatever the seed, for no more tasks than the
            classes allow.
        validation: number of training images held out; a twelfth by default.
        data: a data set of the same kind; by default CIFAR-10.
    """
    return split_classes(
        "split-cifar10",
        tasks,
        seed,
        classes_per_task,
        in_order,
        validation,
        data,
        sources.cifar10,
        "classes",
        normalised,
    )


def normalised(dataset: sources.Dataset) -> Callable[[Images], Tensor]:
    """What makes 8-bit images into channels of mean 0 and deviation 1, by the figures of the training images.

    Division and subtraction are correctly rounded everywhere, so that tasks are equal to the bit on
    every machine.
    """
    mean, deviation = CHANNELS.get(dataset.name) or _channels(dataset.train_x)

    def convert(images: Images) -> Tensor:
        return (pixels.plain(images) - _per_channel(mean)).div_(_per_channel(deviation))

    return convert


def _channels(images: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    counts = np.stack(
        [np.bincount(images[:, c].ravel(), minlength=256) for c in range(images.shape[1])]
    )
    levels: NDArray[np.float64] = np.arange(256) / 255
    mean = counts @ levels / counts.sum(1)
    variance = counts @ levels**2 / counts.sum(1) - mean**2
    # Four digits, as CIFAR's are given: the last bits of a sum may differ between machines.
    return tuple(mean.round(4).tolist()), tuple(np.sqrt(variance.clip(1e-4)).round(4).tolist())


def _per_channel(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)
