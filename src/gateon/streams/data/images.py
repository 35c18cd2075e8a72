"""What streams of images have in common: a part held out, tasks with an identity, classes split over tasks, batches varied."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..base import Part, Split, Stream, assemble, whole
from ..draw import permutation, uniform
from . import sources

__all__ = ["Data", "Parts", "augmented", "crop_and_flip", "make_stream", "prepare", "split_classes"]

Images = NDArray[np.uint8]
Parts = dict[Part, tuple[Images, NDArray[np.int64]]]
Data = sources.Dataset | str | None


def prepare(
    name: str,
    tasks: int,
    seed: int,
    validation: int | None,
    data: Data,
    default: Callable[[], sources.Dataset],
) -> tuple[sources.Dataset, Parts, dict[str, Any]]:
    """Check what all streams of images have in common, load the data and hold out the validation part: a twelfth by default."""
    tasks, seed = whole("tasks", tasks, least=1), whole("seed", seed, least=0)
    if validation is not None:
        validation = whole("validation", validation, least=0)
    if data is None:
        data = default()
    elif isinstance(data, str):
        data = sources.load(data)
    count = len(data.train_x)
    held = count // 12 if validation is None else validation
    if held >= count:
        raise ValueError(
            f"validation={held} leaves nothing to train on: {data.name} has {count} training images."
        )
    order = permutation(count, seed, "validation")
    validating, training = np.sort(order[:held]), np.sort(order[held:])
    parts: Parts = {
        "train": (data.train_x[training], data.train_y[training].astype(np.int64)),
        "validation": (data.train_x[validating], data.train_y[validating].astype(np.int64)),
        "test": (data.test_x, data.test_y.astype(np.int64)),
    }
    return (
        data,
        parts,
        {"stream": name, "tasks": tasks, "seed": seed, "validation": held, "data": data.name},
    )


def make_stream(
    data: sources.Dataset,
    settings: dict[str, Any],
    classes: int,
    split: Callable[[int, Part], Split],
    title: Callable[[int], str],
    key: Callable[[int], object],
    labels: Callable[[int], Sequence[str]] | None = None,
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
        labels=labels,
    )


def split_classes(
    name: str,
    tasks: int,
    seed: int,
    count: int,
    in_order: bool,
    validation: int | None,
    data: Data,
    default: Callable[[], sources.Dataset],
    word: str,
    converter: Callable[[sources.Dataset], Callable[[Images], Tensor]],
) -> Stream:
    """A stream whose tasks have `count` classes each, labelled 0, 1, ... within the task.

    When all classes have been dealt they are dealt anew; classes that are too few for one more task
    are left out of that deal.

    Args:
        name: of the stream.
        tasks: how many.
        seed: deals the classes, and draws the images held out for validation.
        count: classes a task.
        in_order: in the order of their labels, whatever the seed.
        validation: number of training images held out; a twelfth by default.
        data: a data set or its name.
        default: gives the data set that is used by default.
        word: what classes are called: "digits", "classes".
        converter: of a data set: makes 8-bit images into what the network sees.
    """
    count = whole("classes_per_task", count, least=2)
    dataset, parts, settings = prepare(name, tasks, seed, validation, data, default)
    settings |= {"classes_per_task": count, "in_order": in_order}
    convert, deal = converter(dataset), dataset.classes // count
    if count > dataset.classes:
        raise ValueError(
            f"A task cannot have {count} {word}: {dataset.name} has {dataset.classes} classes; choose fewer."
        )
    if in_order and tasks > deal:
        raise ValueError(
            f"In order there are {deal} tasks of {count} {word}, not {tasks}: ask for fewer, or drop in_order."
        )

    def dealt(k: int) -> tuple[int, ...]:
        order = (
            np.arange(dataset.classes)
            if in_order
            else permutation(dataset.classes, seed, "split", k // deal)
        )
        start = k % deal * count
        return tuple(order[start : start + count].tolist())

    def split(k: int, part: Part) -> Split:
        images, labels = parts[part]
        within = np.full(dataset.classes, -1)
        within[list(dealt(k))] = np.arange(count)
        rows = np.flatnonzero(within[labels] >= 0)
        return Split(convert(images[rows]), torch.tensor(within[labels[rows]]))

    def names(k: int) -> list[str]:
        return [str(number) for number in dealt(k)]

    def title(k: int) -> str:
        return " ".join([word, *names(k)])

    return make_stream(dataset, settings, count, split, title, dealt, names)


def augmented(stream: Stream) -> Stream:
    """The same stream, with every training batch varied by `crop_and_flip` when it is learned. Its data stay as they are.

    >>> from gateon import streams
    >>> stream = augmented(streams.split_mnist(data="mnist-5k"))
    >>> x = stream[0].train.x[:2]
    >>> torch.equal(stream.augment(x, (0, 0, 7)), stream.augment(x, (0, 0, 7))), stream.fingerprint(0) == streams.split_mnist(
    ...     data="mnist-5k").fingerprint(0)
    (True, True)
    """
    if len(stream.shape) != 3:
        raise ValueError(
            f"Only images can be cropped and flipped, not inputs of shape {stream.shape}: leave augmentation out."
        )
    if any(
        word.startswith("permuted") for word in stream.name.split()
    ):  # also where its tasks return
        raise ValueError(
            "Permuted pixels have no neighbours, so that such images cannot be moved: leave augmentation out."
        )
    if stream.augment is not None:
        raise ValueError(f"{stream.name} is augmented already: once is enough.")
    return replace(
        stream, settings={"stream": "augmented", "of": stream.settings}, augment=crop_and_flip
    )


def crop_and_flip(x: Tensor, key: tuple[int, ...], padding: int = 4) -> Tensor:
    """Every image moved by up to `padding` pixels each way, zeros coming in, and every other one mirrored, at random.

    Args:
        x: images (N, C, H, W).
        key: what the draws depend on, such as (seed, task, step): the same on every machine, so
            that a run resumes exactly.
        padding: pixels.

    >>> crop_and_flip(torch.arange(16.0).view(1, 1, 4, 4), (0, 0, 0), padding=1)
    tensor([[[[ 7.,  6.,  5.,  4.],
              [11., 10.,  9.,  8.],
              [15., 14., 13., 12.],
              [ 0.,  0.,  0.,  0.]]]])
    """
    count, _, height, width = x.shape
    draws = torch.from_numpy(uniform(3 * count, 0, "crop and flip", *key)).view(3, count)
    down, right = (draws[:2] * (2 * padding + 1)).long()
    rows = (down[:, None] + torch.arange(height)).to(x.device)
    columns = right[:, None] + torch.arange(width)
    columns = torch.where(draws[2, :, None] < 0.5, columns, columns.flip(1)).to(x.device)
    padded = F.pad(x, (padding,) * 4).movedim(1, -1)
    image = torch.arange(count, device=x.device)
    return (
        padded[image[:, None, None], rows[:, :, None], columns[:, None, :]]
        .movedim(-1, 1)
        .contiguous()
    )
