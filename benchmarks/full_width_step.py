"""One training step over the whole width, every gate open, beside the same step of the plain network.

    python benchmarks/full_width_step.py [--rounds 60]

784-2000-2000-10, batches of 1000, Adam. Both views, with availabilities below 1, so that every
update is really scaled.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import nn

import gateon
import measure


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(784, 2000), nn.ReLU(), nn.Linear(2000, 2000), nn.ReLU(), nn.Linear(2000, 10)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--batch", type=int, default=1000)
    options = parser.parse_args()
    x, y = torch.rand(options.batch, 784), torch.randint(0, 10, (options.batch,))

    def plain():
        model = network()
        return step(model, torch.optim.Adam(model.parameters(), lr=1e-3))

    def obstructed(per, apply):
        model = network()
        gates = gateon.attach(model, contexts=10, density=1.0, start=0.9)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        handle = gateon.obstruct(optimizer, gates, per=per, rate=0.01, epsilon=0.5, apply=apply)
        run = step(model, optimizer)
        run()
        gates.switch(1)
        assert all((A < 1).any() for A in handle.applied.values())
        return run

    def step(model, optimizer):
        def run() -> None:
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

        return run

    variants = {"plain": plain()}
    for apply, words in (("switch", ""), ("step", ", availability applied at once")):
        for per in ("unit", "parameter"):
            variants[f"per {per}{words}"] = obstructed(per, apply)
    table = measure.ratios(measure.interleaved(variants, options.rounds), "plain")
    measure.show(table)
    settings = {
        "network": "784-2000-2000-10",
        "batch": options.batch,
        "optimizer": "Adam",
        "rounds": options.rounds,
        "gates": "open",
    }
    measure.write("cost/full-width-step", settings, table, "python benchmarks/full_width_step.py")


if __name__ == "__main__":
    main()
