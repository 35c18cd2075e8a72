"""What GateON costs beside a plain network of the same width: steps, evaluation, switches, many contexts, memory.

    python benchmarks/compact_step.py [--quick]

Every row is a ratio to the plain network in the same run, the two interleaved; both go through the
same `Learner`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

import gateon
import measure
from gateon.networks import mlp

ADAM = partial(torch.optim.Adam, lr=1e-3)


def plain(make: Callable[[], nn.Module]) -> gateon.Learner:
    torch.manual_seed(0)
    return gateon.Learner(make(), optimizer=ADAM)


def gated(make: Callable[[], nn.Module], per: str, density: float, **options) -> gateon.Learner:
    """In its second context, so that availabilities below 1 are applied."""
    torch.manual_seed(0)
    method = gateon.GateON(
        per=per,
        density=density,
        epsilon=0.5,
        start=0.9 if density == 1 else "random",
        width=1.0,
        power=1,
    )
    return gateon.Learner(make(), optimizer=ADAM, method=method, **options)


def step_of(learner: gateon.Learner, x, y) -> Callable[[], None]:
    for context in (0, 0, 1, 1):
        learner.observe(x, y, context=context)
    return lambda: learner.observe(x, y, context=1)


def steps(make: Callable[[], nn.Module], shape: tuple[int, ...], batch: int, rounds: int) -> dict:
    torch.manual_seed(0)
    x, y = torch.rand(batch, *shape), torch.randint(0, 10, (batch,))
    variants = {"plain": step_of(plain(make), x, y)}
    for per in ("unit", "parameter"):
        variants[f"full width, per {per}"] = step_of(gated(make, per, 1.0, compact=False), x, y)
        for density in (0.5, 0.25):
            variants[f"compact, density {density}, per {per}"] = step_of(
                gated(make, per, density), x, y
            )
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        variants["compact, density 0.5, bf16"] = step_of(
            gated(make, "unit", 0.5, precision="bf16"), x, y
        )
    return measure.ratios(measure.interleaved(variants, rounds), "plain")


def evaluation(rounds: int) -> dict:
    make = partial(mlp, 784, (2000, 2000), 10, norm="none")
    x, y = torch.rand(10_000, 784), torch.randint(0, 10, (10_000,))
    ungated, small = plain(make), gated(make, "unit", 0.25)
    for learner in (ungated, small):
        for context in (0, 1):
            learner.observe(x[:1000], y[:1000], context=context)
    variants = {
        "plain": lambda: [ungated.predict(part) for part in x.split(2000)],
        "compact, density 0.25": lambda: [small.predict(part, context=1) for part in x.split(2000)],
        "compact, density 0.25, another context": lambda: [
            small.predict(part, context=0) for part in x.split(2000)
        ],
    }
    return measure.ratios(measure.interleaved(variants, rounds), "plain")


def switch(rounds: int) -> dict:
    """Take out, write back, new optimizer: against 250 steps."""
    make = partial(mlp, 784, (2000, 2000), 10, norm="none")
    x, y = torch.rand(1000, 784), torch.randint(0, 10, (1000,))
    found = {}
    for per in ("unit", "parameter"):
        learner = gated(make, per, 0.25)
        seconds: dict[str, list[float]] = {"switch": [], "step": []}
        for n in range(rounds):
            for kind in ("switch", "step", "step"):
                if kind == "switch":
                    start = time.perf_counter()
                    learner.switch(n % 2)
                    seconds[kind].append(time.perf_counter() - start)
                else:
                    start = time.perf_counter()
                    learner.observe(x, y, context=n % 2)
                    seconds[kind].append(time.perf_counter() - start)
        a, b = statistics.median(seconds["switch"]), statistics.median(seconds["step"])
        found[f"per {per}"] = {"milliseconds": 1e3 * a, "share_of_250_steps": a / (250 * b)}
    return found


def many_contexts(rounds: int) -> dict:
    """A step in the hundredth context against one in the first: 784, 4 x 5000, 10, density 0.1."""
    learner = gated(partial(mlp, 784, (5000,) * 4, 10), "parameter", 0.1)
    x, y = torch.rand(500, 784), torch.randint(0, 10, (500,))
    learner.observe(x, y, context=99)
    seconds: dict[str, list[float]] = {"first": [], "hundredth": []}
    for _ in range(rounds):
        for name, context in (("first", 0), ("hundredth", 99)):
            learner.observe(x, y, context=context)
            for _ in range(4):
                start = time.perf_counter()
                learner.observe(x, y, context=context)
                seconds[name].append(time.perf_counter() - start)
    return measure.ratios(seconds, "first")


def memory() -> dict:
    """Peak resident memory of ten steps, each variant in a process of its own, less that of a process that only imports."""
    base = float(_memory_of("nothing"))
    return {
        kind: float(_memory_of(kind)) - base for kind in ("plain", "unit 0.25", "parameter 0.25")
    }


def _memory_of(kind: str) -> str:
    return subprocess.run(
        [sys.executable, __file__, "--memory", kind], capture_output=True, text=True, check=True
    ).stdout


def _use_memory(kind: str) -> None:
    x, y = torch.rand(1000, 784), torch.randint(0, 10, (1000,))
    if kind != "nothing":
        make = partial(mlp, 784, (2000, 2000), 10, norm="none")
        learner = (
            plain(make) if kind == "plain" else gated(make, kind.split()[0], float(kind.split()[1]))
        )
        for _ in range(10):
            learner.observe(x, y, context=0)
    # Not getrusage: its peak begins with that of the process that started this one.
    peak = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    print(int(peak.split()[1]) / 1024)


def cnn() -> nn.Module:
    layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(4)]
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(64 * 36, 500), nn.ReLU(), nn.Linear(500, 10)
    )


def matrix_product(rounds: int) -> float:
    """GFLOP/s of a float32 product of the size of the second layer's, in this run."""
    a, b = torch.rand(1000, 2000), torch.rand(2000, 2000)
    seconds = measure.interleaved({"product": lambda: a @ b}, rounds)["product"]
    return 2 * 1000 * 2000 * 2000 / statistics.median(seconds) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        _use_memory(options.memory)
        return
    rounds = 5 if options.quick else 30
    wide, small = (
        partial(mlp, 784, (2000, 2000), 10, norm="none"),
        partial(mlp, 784, (100, 100), 10, norm="none"),
    )
    result: dict = {"matrix product, GFLOP/s": matrix_product(rounds)}
    for title, make, shape, batch, times in (
        ("784-2000-2000-10, batch 1000", wide, (784,), 1000, rounds),
        ("784-2000-2000-10, batch 256", wide, (784,), 256, rounds),
        ("784-2000-2000-10, batch 32", wide, (784,), 32, rounds),
        ("784-2000-2000-10, batch 1", wide, (784,), 1, rounds),
        ("784-100-100-10, batch 100", small, (784,), 100, 10 * rounds),
        ("CNN 32, 64, 500, batch 100", cnn, (1, 28, 28), 100, rounds),
    ):
        print(f"\n{title}")
        result[title] = steps(make, shape, batch, times)
        measure.show(result[title])
    print("\nevaluation of 10,000 images, 784-2000-2000-10")
    result["evaluation"] = evaluation(rounds)
    measure.show(result["evaluation"])
    result["switch"] = switch(rounds)
    print("\na switch:", result["switch"])
    print("\n100 contexts, 784, 4 x 5000, 10, density 0.1, batch 500")
    result["many contexts"] = many_contexts(max(3, rounds // 3))
    measure.show(result["many contexts"])
    result["memory, MiB"] = memory()
    print("\npeak memory, MiB:", result["memory, MiB"])
    measure.write(
        "cost/compact-step",
        {"optimizer": "Adam", "rounds": rounds},
        result,
        "python benchmarks/compact_step.py",
    )


if __name__ == "__main__":
    main()
