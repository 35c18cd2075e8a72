"""Split CIFAR-100, class-incremental: twenty tasks of five classes in turn, and nobody says which task a test image is of.

    python benchmarks/living_classes.py

A living model, and the nearest class mean on the features by which it recognises tasks (the pixels
at 28 x 28, since nothing pretrained sees images).
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor

import measure
from gateon import LivingModel
from gateon.life.settings import DEFAULTS
from gateon.streams import split_cifar100
from gateon.streams.base import Stream

MEAN, DEVIATION = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)  # of the stream's channels


def images(stream: Stream, task: int, part: str) -> tuple[Tensor, list[str]]:
    """Images of a task as fractions from 0 to 1, and the names of their classes over all tasks."""
    split = stream.split(task, part)
    mean, deviation = (torch.tensor(values).reshape(1, 3, 1, 1) for values in (MEAN, DEVIATION))
    names = [f"task {task + 1} class {label + 1}" for label in split.y.tolist()]
    return (split.x * deviation + mean).clamp(0, 1), names


def nearest_means(stream: Stream) -> dict[str, float]:
    """The nearest class mean on pixels at 28 x 28."""
    means, names = [], []
    for task in range(len(stream)):
        x, labels = small(stream, task, "train")
        for name in sorted(set(labels)):
            means.append(x[[label == name for label in labels]].mean(0))
            names.append(name)
    centres, right, found = torch.stack(means), [], []
    for task in range(len(stream)):
        x, labels = small(stream, task, "test")
        best = [names[n] for n in torch.cdist(x, centres).argmin(1).tolist()]
        right += [a == b for a, b in zip(best, labels, strict=True)]
        found += [name.startswith(f"task {task + 1} ") for name in best]
    return {"not told": percent(right), "task": percent(found)}


def small(stream: Stream, task: int, part: str) -> tuple[Tensor, list[str]]:
    """What a living model recognises images by."""
    x, labels = images(stream, task, part)
    return torch.nn.functional.adaptive_avg_pool2d(x, 28).flatten(1), labels


def living(stream: Stream, epochs: int | None) -> dict[str, float]:
    """A model that learns the tasks in turn, asked with and without the task."""
    model, begin = LivingModel(seed=0), time.monotonic()
    then = []
    for task in range(len(stream)):
        lesson = model.learn(images(stream, task, "train"), task=f"task {task + 1}", epochs=epochs)
        print(f"{lesson[0].task}: {lesson[0].accuracy}, {lesson[0].seconds:.0f} s", flush=True)
        then.append(told(model, stream, task))
    seconds = time.monotonic() - begin
    right, found = [], []
    for task in range(len(stream)):
        x, labels = images(stream, task, "test")
        answers = model.predict(x)
        right += [a == b for a, b in zip(answers.labels, labels, strict=True)]
        found += [name == f"task {task + 1}" for name in answers.tasks]
    now = [told(model, stream, task) for task in range(len(stream))]
    return {
        "not told": percent(right),
        "task": percent(found),
        "told": sum(now) / len(now),
        "told, right after each task": sum(then) / len(then),
        "seconds": seconds,
    }


def told(model: LivingModel, stream: Stream, task: int) -> float:
    x, labels = images(stream, task, "test")
    answers = model.predict(x, task=f"task {task + 1}")
    return percent([a == b for a, b in zip(answers.labels, labels, strict=True)])


def percent(right: list[bool]) -> float:
    return 100 * sum(right) / len(right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--dry", action="store_true", help="write no record")
    options = parser.parse_args()
    stream = split_cifar100(tasks=options.tasks)
    result = {
        "living model": living(stream, options.epochs),
        "nearest class mean": nearest_means(stream),
    }
    for name, row in result.items():
        print(name, ", ".join(f"{k} {v:.4g}" for k, v in row.items()))
    if not options.dry:
        settings = {"tasks": options.tasks, "epochs": options.epochs, "seed": 0}
        settings["model"] = DEFAULTS["images"].state()
        measure.write("life/classes", settings, result, "python benchmarks/living_classes.py")


if __name__ == "__main__":
    main()
