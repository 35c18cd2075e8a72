"""Accuracy, forgetting and training time against density, on permuted and rotated MNIST; measured on validation data.

    python benchmarks/density.py

Ten tasks, 784-1000-1000-10, 200 batches of 500 a task, preset best, one seed. Time is that of
training, beside a plain network's.
"""

from __future__ import annotations

import argparse

import measure
from gateon.runs.run import run
from gateon.runs.specification import Specification

DENSITIES = (0.05, 0.1, 0.25, 0.5, 1.0)


def one(
    stream: str, method: str, density: float | None, tasks: int, steps: int
) -> dict[str, float]:
    asked = Specification.from_options(
        {
            "stream.name": stream,
            "stream.tasks": tasks,
            "method.name": method,
            "method.density": density,
            "network.hidden": (1000, 1000),
            "training.steps": steps,
            "training.batch": 500,
            "measuring.part": "validation",
        }
    )
    made = asked.make_stream()
    record = run(made, asked.make_learner(made), steps=steps, batch=500, part="validation")
    frozen = [site["frozen"] for site in record.availability[-1].values()]
    return record.summary | {
        "seconds": sum(s["train"] for s in record.seconds),
        "frozen": max(frozen) if frozen else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    rows = []
    for stream in ("permuted-mnist", "rotated-mnist"):
        plain = one(stream, "finetune", None, options.tasks, options.steps)
        rows.append(
            {"stream": stream, "method": "finetune", "density": None, "of_plain": 1.0} | plain
        )
        for method in ("n-gateon", "p-gateon"):
            for density in DENSITIES:
                found = one(stream, method, density, options.tasks, options.steps)
                rows.append(
                    {
                        "stream": stream,
                        "method": method,
                        "density": density,
                        "of_plain": found["seconds"] / plain["seconds"],
                    }
                    | found
                )
                words = {k: round(v, 4) for k, v in rows[-1].items() if isinstance(v, float)}
                print(stream, method, words, flush=True)
    settings = {
        "tasks": options.tasks,
        "steps": options.steps,
        "hidden": [1000, 1000],
        "batch": 500,
        "part": "validation",
        "seed": 0,
    }
    measure.write("cost/density", settings, rows, "python benchmarks/density.py")


if __name__ == "__main__":
    main()
