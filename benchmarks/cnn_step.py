"""What a step of the convolutional networks costs: GateON on the active sub-network, beside the plain network of the same width.

    python benchmarks/cnn_step.py [--quick] [--dry]

Every row is a ratio to the plain network in the same run, the two interleaved; both go through the
same `Learner`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

import gateon
import measure
from compact_step import step_of
from gateon.anatomy.sites import find_sites
from gateon.networks import cnn, wide_resnet

OPTIMIZERS = {
    "adam": partial(torch.optim.Adam, lr=5e-3),
    "sgd": partial(torch.optim.SGD, lr=0.02, momentum=0.9),
}


def steps(
    make: Callable[[], nn.Module], shape: tuple[int, ...], batch: int, optimizer: str, rounds: int
) -> dict:
    """A residual network is also measured with one gate for all that is summed in a stage."""
    torch.manual_seed(0)
    x, y = torch.rand(batch, *shape), torch.randint(0, 5, (batch,))

    def learner(method: gateon.GateON | None = None, **options) -> gateon.Learner:
        torch.manual_seed(0)
        return gateon.Learner(make(), optimizer=OPTIMIZERS[optimizer], method=method, **options)

    variants = {"plain": step_of(learner(), x, y)}
    stages = any(site.at_readers for site in find_sites(make(), None, residual="stage"))
    for residual, title in (("branch", ""), *([("stage", " by stage")] if stages else ())):
        for per in ("unit", "parameter"):
            method = gateon.GateON(per=per, density=0.5, residual=residual)
            variants[f"compact{title}, density 0.5, per {per}"] = step_of(learner(method), x, y)
    variants["full width, density 0.5, per unit"] = step_of(
        learner(gateon.GateON(density=0.5), compact=False), x, y
    )
    return measure.ratios(measure.interleaved(variants, rounds, warm_up=1), "plain")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--dry", action="store_true", help="write no record")
    options = parser.parse_args()
    rounds = 3 if options.quick else 15
    result: dict = {}
    for title, make, shape, batch, optimizer in (
        (
            "CNN 32, 64, hidden 500, batch 100",
            partial(cnn, (1, 28, 28), (32, 64), (500,), 10),
            (1, 28, 28),
            100,
            "adam",
        ),
        (
            "CNN 64, 128, hidden 1000, batch 100",
            partial(cnn, (1, 28, 28), (64, 128), (1000,), 10),
            (1, 28, 28),
            100,
            "adam",
        ),
        ("Wide ResNet 16-2, batch 128", partial(wide_resnet, 16, 2, 5), (3, 32, 32), 128, "sgd"),
    ):
        print(f"\n{title}")
        result[title] = steps(make, shape, batch, optimizer, rounds)
        measure.show(result[title])
    if not options.dry:
        settings = {"rounds": rounds, "density": 0.5}
        measure.write("cost/cnn-step", settings, result, "python benchmarks/cnn_step.py")


if __name__ == "__main__":
    main()
