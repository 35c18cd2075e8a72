"""What the detector costs in a step without a switch: contexts inferred beside contexts known, interleaved.

    python benchmarks/detector_step.py

784-2000-2000-10, density 0.25, batches of 1000, Adam; the same learner with and without a detector.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch

import measure
from gateon import ContextDetector, GateON, Learner
from gateon.networks import mlp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    x, y = (
        torch.randn(1000, 784, generator=generator),
        torch.randint(0, 10, (1000,), generator=generator),
    )

    def learner(detector: ContextDetector | None) -> Learner:
        torch.manual_seed(0)
        model = mlp(784, (2000, 2000), 10)
        return Learner(
            model, optimizer=partial(torch.optim.Adam, lr=1e-4), method=GateON(), contexts=detector
        )

    known, inferred = learner(None), learner(ContextDetector())
    variants = {
        "known": lambda: known.observe(x, y, context=0) and None,
        "inferred": lambda: inferred.observe(x, y) and None,
    }
    table = measure.ratios(measure.interleaved(variants, options.rounds), "known")
    measure.show(table)
    assert inferred.contexts is not None and inferred.contexts.contexts == 1
    settings = {"hidden": [2000, 2000], "density": 0.25, "batch": 1000, "rounds": options.rounds}
    measure.write("cost/detector-step", settings, table, "python benchmarks/detector_step.py")


if __name__ == "__main__":
    main()
