"""The context of a single image among tasks of MNIST, recognised without a label, from sums alone.

    python benchmarks/living_images.py

Permuted tasks (10 and 100): is the task of a test image found? Ten rotated tasks (random angles): one
gated network learns them in turn; how much accuracy is lost if nobody tells the angle?
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import torch

import measure
from gateon import GateON, Learner
from gateon.detection.recogniser import Recogniser
from gateon.networks.mlp import mlp
from gateon.streams import permuted_mnist, rotated_mnist
from gateon.streams.base import Stream
from gateon.streams.draw import permutation

CLASSES = 10


def drawn(stream: Stream, task: int, part: Any, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """So many images of a task, flat, and their labels."""
    split = stream.split(task, part)
    chosen = torch.from_numpy(permutation(len(split.x), 0, part, task)[:count])
    return split.x[chosen].flatten(1), split.y[chosen]


def added(stream: Stream, width: int, images: int) -> tuple[Recogniser, float]:
    """A recogniser that has seen some images of every task, and the seconds that took."""
    recogniser, begin = Recogniser(784, width), time.monotonic()
    for task in range(len(stream)):
        x, y = drawn(stream, task, "train", images)
        recogniser.add(x, CLASSES * task + y, task)
    held = [drawn(stream, task, "validation", 50) for task in range(len(stream))]
    recogniser.calibrate(
        torch.cat([x for x, _ in held]),
        torch.cat([CLASSES * task + y for task, (_, y) in enumerate(held)]),
    )
    return recogniser, time.monotonic() - begin


def contexts(tasks: int, width: int, images: int, tested: int) -> dict[str, float]:
    """The share of single test images whose permuted task is found."""
    stream = permuted_mnist(tasks=tasks, seed=0)
    recogniser, seconds = added(stream, width, images)
    right, certain = [], []
    for task in range(tasks):
        seen = recogniser.recognise(drawn(stream, task, "test", tested)[0])
        right.append(seen.task == task)
        certain.append(seen.certainty)
    return {
        "context": 100 * torch.cat(right).double().mean().item(),
        "certainty": 100 * torch.cat(certain).double().mean().item(),
        "images": tasks * tested,
        "seconds": seconds,
        "bytes a context": 4 * CLASSES * width,
        "bytes shared": 4 * width * (width + 1) // 2,
    }


def rotated(width: int, images: int, tested: int, steps: int) -> dict[str, float]:
    """Accuracy over ten rotated tasks, each learned in its context: told, and recognised."""
    stream = rotated_mnist(tasks=10, seed=0)
    recogniser, _ = added(stream, width, images)
    torch.manual_seed(0)
    learner = Learner(
        mlp(784, (1000,), CLASSES), optimizer=partial(torch.optim.Adam, lr=5e-3), method=GateON()
    )
    for task in range(len(stream)):
        x, y = drawn(stream, task, "train", 20_000)
        for some in torch.from_numpy(permutation(steps * 200, 1, task)).split(200):
            learner.observe(x[some % len(x)], y[some % len(x)], context=task)
    told, found, asked = [], [], []
    for task in range(len(stream)):
        x, y = drawn(stream, task, "test", tested)
        logits = torch.cat([learner.predict(x, context=k) for k in range(len(stream))], 1)
        seen = recogniser.recognise(x, logits)
        own = logits[:, CLASSES * task : CLASSES * (task + 1)].argmax(1)
        labels = seen.rows.unflatten(1, (len(stream), CLASSES)).sum(1)
        told.append(own == y)
        found.append(labels.argmax(1) == y)
        asked.append(seen.task == task)
    shares = {"told": told, "recognised": found, "context": asked}
    return {name: 100 * torch.cat(right).double().mean().item() for name, right in shares.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--images", type=int, default=2000, help="of each task that are added")
    options = parser.parse_args()
    result = {
        "10 permuted tasks": contexts(10, options.width, options.images, 1000),
        "100 permuted tasks": contexts(100, options.width, options.images, 100),
        "10 rotated tasks": rotated(options.width, options.images, 1000, 200),
    }
    for name, row in result.items():
        print(name, ", ".join(f"{k} {v:.4g}" for k, v in row.items()))
    measure.write("life/images", vars(options), result, "python benchmarks/living_images.py")


if __name__ == "__main__":
    main()
