"""What a batch costs a living model whose samples belong to 16 tasks, beside one of a single task.

    python benchmarks/living_batch.py [--quick]

The model learns 16 tasks for a moment each; then `predict` answers a batch of one task, told and
recognised, and a batch of as many samples evenly from all tasks, interleaved.
"""

from __future__ import annotations

import argparse

import numpy as np

import gateon
import measure
from gateon.life import settings, training

TASKS, LABELS, BATCH = 16, 4, 1024


def features(task: int, rows: int, draw: int) -> tuple[np.ndarray, list[str]]:
    """Clouds of 20 numbers around a centre for each label."""
    centres = 2 * np.random.default_rng(task).normal(size=(LABELS, 20))
    y = np.arange(rows) % LABELS
    noise = np.random.default_rng([task, draw]).normal(size=(rows, 20))
    return centres[y] + 0.4 * noise, [str(label) for label in y]


def images(task: int, rows: int, draw: int) -> tuple[np.ndarray, list[str]]:
    """Noisy copies of one random picture for each label."""
    centres = np.random.default_rng(task).integers(0, 200, size=(LABELS, 28, 28))
    y = np.arange(rows) % LABELS
    noise = np.random.default_rng([task, draw]).integers(0, 55, size=(rows, 28, 28))
    return (centres[y] + noise).astype(np.uint8), [str(label) for label in y]


def costs(make, rounds: int) -> dict:
    model = gateon.LivingModel()
    for task in range(TASKS):
        model.learn(make(task, 120, 0), task=f"task {task}", epochs=1)
    one = make(0, BATCH, 1)[0]
    mixed = np.concatenate([make(task, BATCH // TASKS, 1)[0] for task in range(TASKS)])
    assert len(set(model.predict(mixed).tasks)) == TASKS
    variants = {
        "one task, recognised": lambda: model.predict(one),
        "one task, told": lambda: model.predict(one, task="task 0"),
        "16 tasks, recognised": lambda: model.predict(mixed),
    }
    return measure.ratios(measure.interleaved(variants, rounds), "one task, recognised")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    training.FEWEST = 1  # how well it learns does not matter here
    result = {}
    for make in (features, images):
        result[make.__name__] = costs(make, 5 if options.quick else 30)
        print(f"\n{make.__name__}, a batch of {BATCH}")
        measure.show(result[make.__name__])
    asked = {kind: settings.DEFAULTS[kind].state() for kind in ("features", "images")}
    told = {"tasks": TASKS, "labels": LABELS, "batch": BATCH, "settings": asked}
    if not options.quick:
        measure.write("cost/living-batch", told, result, "python benchmarks/living_batch.py")


if __name__ == "__main__":
    main()
