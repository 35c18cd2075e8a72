"""What a trace costs in a step at its default: the same run of steps traced and not traced, interleaved.

    python benchmarks/trace_step.py [--dry] [--rounds N]

Each round is as many steps as lie between two samples. --dry prints and writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

import measure
from gateon import GateON, Learner, gates_of
from gateon.networks import cnn, mlp
from gateon.tracing.recorder import Recorder, new_trace
from gateon.tracing.trace import EVERY

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "784-300-300-10, batch 100": (partial(mlp, 784, (300, 300), 10), (784,), 100),
    "784-2000-2000-10, batch 1000": (partial(mlp, 784, (2000, 2000), 10), (784,), 1000),
    "CNN 32, 64, hidden 500, batch 100": (
        partial(cnn, (1, 28, 28), (32, 64), (500,), 10),
        (1, 28, 28),
        100,
    ),
}


def steps_of(network: str, per: str, *, traced: bool) -> Callable[[], None]:
    make, shape, batch = NETWORKS[network]
    torch.manual_seed(0)
    x, y = torch.rand(batch, *shape), torch.randint(0, 10, (batch,))
    adam = partial(torch.optim.Adam, lr=1e-4)
    learner = Learner(make(), optimizer=adam, method=GateON(per=per))
    gates = gates_of(learner.model)
    assert gates is not None
    if traced:
        Recorder(learner, new_trace(gates, ["*"]))

    def steps() -> None:
        for _ in range(EVERY):
            learner.observe(x, y, context=0)

    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    result = {}
    for network in NETWORKS:
        for per in ("unit", "parameter"):
            variants = {
                "not traced": steps_of(network, per, traced=False),
                "traced": steps_of(network, per, traced=True),
            }
            table = measure.ratios(measure.interleaved(variants, options.rounds), "not traced")
            print(f"\n{network}, per {per}")
            measure.show(table)
            result[f"{network}, per {per}"] = table
    if not options.dry:
        settings = {"every": EVERY, "density": 0.25, "rounds": options.rounds}
        measure.write("cost/trace-step", settings, result, "python benchmarks/trace_step.py")


if __name__ == "__main__":
    main()
