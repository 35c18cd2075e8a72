"""What a checkpoint costs: seconds to gather, hash, write and sync it, and their share of the time at the default interval."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import torch

import measure
from gateon.runs.saving import SAVE_EVERY, SPARING
from gateon.runs.specification import Specification
from gateon.storage import checkpoint

NETWORKS = {"2 x 2000": ((2000, 2000), 0.25), "4 x 5000": ((5000,) * 4, 0.1)}


def main() -> None:
    rows = []
    for name, (hidden, density) in NETWORKS.items():
        for method in ("n-gateon", "p-gateon"):
            asked = Specification.from_options(
                {
                    "stream.name": "permuted-mnist",
                    "method.name": method,
                    "network.hidden": hidden,
                    "method.density": density,
                    "stream.data": "mnist-5k",
                }
            )
            learner = asked.make_learner(asked.make_stream())
            learner.observe(torch.rand(100, 1, 28, 28), torch.arange(100) % 10, context=0)
            with tempfile.TemporaryDirectory(dir=".") as folder:
                path, saving, busy, loading = Path(folder) / "x", [], [], []
                for _ in range(3):
                    start, processor = time.monotonic(), time.process_time()
                    checkpoint.save({"learner": learner.state_dict()}, path)
                    saving.append(time.monotonic() - start)
                    busy.append(time.process_time() - processor)
                    start = time.monotonic()
                    checkpoint.load(path)
                    loading.append(time.monotonic() - start)
                size = path.stat().st_size / 1e6
            seconds = statistics.median(saving)
            between = max(SAVE_EVERY, SPARING * seconds)
            rows.append(
                {
                    "network": name,
                    "method": method,
                    "megabytes": round(size, 1),
                    "seconds": round(seconds, 3),
                    "seconds of the processor": round(statistics.median(busy), 3),
                    "seconds to load": round(statistics.median(loading), 3),
                    "seconds between two": round(between, 1),
                    "percent of the time": round(100 * seconds / (between + seconds), 2),
                }
            )
            print(rows[-1], flush=True)
    measure.write(
        "reliability/checkpoints",
        {"default seconds between two": SAVE_EVERY},
        rows,
        "python benchmarks/checkpoints.py",
    )


if __name__ == "__main__":
    main()
