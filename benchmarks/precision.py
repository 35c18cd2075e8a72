"""Accuracy with bf16 autocast against float32, on ten permuted tasks.

    python benchmarks/precision.py

784-200-200-10 on the 5,000 embedded digits, 60 batches of 100 a task, three seeds: small, so that
it also ends on processors that compute bf16 in software.
"""

from __future__ import annotations

import statistics

import measure
from gateon.runs.run import run
from gateon.runs.specification import Specification


def continual(precision: str, seed: int) -> float:
    asked = Specification.from_options(
        {
            "stream.name": "permuted-mnist",
            "stream.data": "mnist-5k",
            "stream.tasks": 10,
            "seed": seed,
            "network.hidden": (200, 200),
            "training.steps": 60,
            "training.batch": 100,
            "training.precision": precision,
        }
    )
    stream = asked.make_stream()
    return run(stream, asked.make_learner(stream), steps=60, batch=100, seed=seed).summary[
        "continual_accuracy"
    ]


def main() -> None:
    result = {
        precision: [continual(precision, seed) for seed in range(3)]
        for precision in ("float32", "bf16")
    }
    for precision, values in result.items():
        print(
            f"{precision:8} {100 * statistics.fmean(values):.2f} ± {100 * statistics.stdev(values):.2f}"
        )
    settings = {
        "hidden": [200, 200],
        "tasks": 10,
        "steps": 60,
        "batch": 100,
        "data": "mnist-5k",
        "seeds": 3,
    }
    measure.write("cost/precision", settings, result, "python benchmarks/precision.py")


if __name__ == "__main__":
    main()
