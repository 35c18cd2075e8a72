"""A thousand short tasks, each in a context of its own: whether a step takes longer and memory grows as they go by.

    python benchmarks/soak.py                          1,000 tasks, with a record
    python benchmarks/soak.py --tasks 200 --dry        fewer, and no record

The time of a step is set beside that of the same step in a network with one context, taken in the
same moment, so that whatever else the machine does falls on both. Memory grows by what a context
brings (a row of gates and of statistics for every layer) and by the accuracies of all tasks after
each. Slopes are those of a straight line through all tasks but the first tenth.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import measure
from gateon.runs.run import Quiet, run
from gateon.runs.specification import Specification
from gateon.storage import checkpoint

EVERY = 20  # tasks between two looks at the memory and two checkpoints


class Watch(Quiet):
    """Steps, and first steps with their switch, beside those of a network with one context; megabytes of the process and of checkpoints."""

    def __init__(self, one_context: Callable[[], object], save: Callable[[], int]) -> None:
        self.one_context, self.save = one_context, save
        self.checkpoints: list[float] = []  # megabytes
        self.saving: list[float] = []  # milliseconds of the processor
        self.steps: list[float] = []
        self.switches: list[float] = []
        self.milliseconds: list[float] = []
        self.memory: list[float] = []
        self.each: list[float] = []
        self.first = 0.0
        self.last = time.process_time()

    def step(self, task: int, step: int, loss: float) -> None:
        now = time.process_time()
        if step == 1:
            self.first = now - self.last
        else:
            self.each.append(now - self.last)
        self.last = time.process_time()

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        control = []
        for _ in range(3):
            start = time.process_time()
            self.one_context()
            control.append(time.process_time() - start)
        self.milliseconds.append(1e3 * statistics.median(self.each))
        self.steps.append(statistics.median(self.each) / statistics.median(control))
        self.switches.append(self.first / statistics.median(control))
        self.each.clear()
        if task % EVERY == 0:
            gc.collect()
            self.memory.append(resident())
            start = time.process_time()
            self.checkpoints.append(self.save() / 1e6)
            self.saving.append(1e3 * (time.process_time() - start))
        self.last = time.process_time()


def resident() -> float:
    """Megabytes the process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def slope(values: list[float], tasks: int = 1) -> float:
    """Growth in a hundred tasks, of a straight line through all but the first tenth; one value every so many tasks."""
    kept = values[len(values) // 10 :]
    return float(100 / tasks * np.polyfit(np.arange(len(kept)), kept, 1)[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--method", default="n-gateon")
    parser.add_argument("--dry", action="store_true", help="write no record")
    options = parser.parse_args()
    hidden = (100, 100)
    asked = Specification.from_options(
        {
            "stream.name": "permuted-mnist",
            "stream.tasks": options.tasks,
            "method.name": options.method,
            "network.hidden": hidden,
            "training.steps": options.steps,
            "training.batch": 50,
            "stream.data": "mnist-5k",
            "training.threads": 1,
        }
    )
    stream = asked.make_stream()
    learner, other = asked.make_learner(stream), asked.make_learner(stream)
    x, y = stream[0].train.x[:50], stream[0].train.y[:50]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "aside" / "checkpoint.safetensors"
        path.parent.mkdir()

        def save() -> int:
            checkpoint.save(learner.state_dict(), path)
            return path.stat().st_size

        watch = Watch(lambda: other.observe(x, y, 0), save)
        run(
            stream,
            learner,
            folder,
            steps=asked.training.steps,
            batch=50,
            evaluate="last",
            progress=watch,
            specification=asked.to_dict(),
        )
        record = (Path(folder) / "record.json").stat().st_size
    state = learner.model.state_dict()
    rows = {
        name: tensor
        for name, tensor in state.items()
        if tensor.dim() == 2 and len(tensor) == options.tasks
    }
    result = {
        "tasks": options.tasks,
        "milliseconds of a step": round(statistics.median(watch.milliseconds), 2),
        "step, to that with one context": round(statistics.median(watch.steps), 3),
        "its growth in 100 tasks": round(slope(watch.steps), 4),
        "first step with its switch, to the same": round(statistics.median(watch.switches), 3),
        "growth of that in 100 tasks": round(slope(watch.switches), 4),
        "megabytes of the process": round(watch.memory[-1], 1),
        "their growth in 100 tasks": round(slope(watch.memory, EVERY), 3),
        "of which rows of contexts": round(
            sum(t[0].numel() * t.element_size() for t in rows.values()) / 1e4, 3
        ),
        "megabytes of a checkpoint": round(watch.checkpoints[-1], 2),
        "growth of that in 100 contexts": round(slope(watch.checkpoints, EVERY), 3),
        "milliseconds to write one": round(watch.saving[-1], 1),
        "growth of those in 100 contexts": round(slope(watch.saving, EVERY), 2),
        "kilobytes of the record for a task": round(record / 1e3 / options.tasks, 3),
        "megabytes copied to add all contexts": round(
            sum(t.numel() * t.element_size() for t in rows.values()) * options.tasks / 2e6, 1
        ),
    }
    for name, value in result.items():
        print(f"{name:45} {value}")
    if not options.dry:
        settings = {
            "hidden": list(hidden),
            "steps": options.steps,
            "batch": 50,
            "method": options.method,
            "data": "mnist-5k",
        }
        measure.write("reliability/soak", settings, result, "python benchmarks/soak.py")
    return int(result["its growth in 100 tasks"] > 0.02 or result["their growth in 100 tasks"] > 5)


if __name__ == "__main__":
    sys.exit(main())
