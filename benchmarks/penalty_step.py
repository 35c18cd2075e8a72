"""One training step of EWC and of SI in their second task, beside the same step of the plain network.

    python benchmarks/penalty_step.py [--rounds 60]

784-2000-2000-10, batches of 1000 and of 256, Adam, a step of `Learner` each. How long EWC takes for
the Fisher information at the end of a task of 2000 samples is measured apart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import measure
from gateon.learners.learner import Learner
from gateon.methods import Finetune, Method
from gateon.methods.ewc import EWC
from gateon.methods.si import SI
from gateon.networks import mlp

METHODS: dict[str, Callable[[], Method]] = {"plain": Finetune, "EWC": EWC, "SI": SI}


def second_task(make: Callable[[], Method], batch: int) -> tuple[Callable[[], Any], float]:
    """A step with a past to hold on to, and how long the end of the first task took."""
    torch.manual_seed(0)
    x, y = torch.rand(2000, 784), torch.randint(0, 10, (2000,))
    learner = Learner(
        mlp(784, (2000, 2000), 10, norm="none"),
        optimizer=partial(torch.optim.Adam, lr=1e-3),
        method=make(),
    )
    learner.observe(x[:batch], y[:batch], context=0)
    start = time.perf_counter()
    learner.end_task(0, [(x, y)])
    return partial(learner.observe, x[:batch], y[:batch], context=1), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    result, ends = {}, {}
    for batch in (1000, 256):
        steps = {name: second_task(make, batch) for name, make in METHODS.items()}
        ends |= {name: seconds for name, (_, seconds) in steps.items()}
        table = measure.ratios(
            measure.interleaved({name: step for name, (step, _) in steps.items()}, options.rounds),
            "plain",
        )
        result |= {f"{name}, batches of {batch}": row for name, row in table.items()}
    measure.show(result)
    settings = {
        "network": "784-2000-2000-10",
        "optimizer": "Adam",
        "rounds": options.rounds,
        "seconds at the end of a task": ends,
    }
    measure.write("cost/penalty-step", settings, result, "python benchmarks/penalty_step.py")


if __name__ == "__main__":
    main()
