"""One training step of MiniLM with gates and obstruction, beside the same step of plain fine-tuning.

    python benchmarks/hf_step.py [--rounds 20]

Batches of 32 texts of 64 tokens, AdamW. Both views, with availabilities below 1, so that every
update is really scaled.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F

import gateon.integrations.hf
import measure
from gateon.networks import text_classifier

CLASSES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    options = parser.parse_args()
    torch.manual_seed(0)
    # ids of whole words, none of them padding
    ids = torch.randint(1000, 30000, (options.batch, options.length))
    y = torch.randint(0, CLASSES, (options.batch,))

    def network():
        torch.manual_seed(0)
        return text_classifier("minilm", CLASSES).train()

    def step(model, optimizer):
        def run() -> None:
            F.cross_entropy(model(ids), y).backward()
            optimizer.step()
            optimizer.zero_grad()

        return run

    def plain():
        model = network()
        return step(model, torch.optim.AdamW(model.parameters(), lr=1e-4))

    def obstructed(per):
        model = network()
        gates = gateon.hf.attach(model, contexts=10)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        handle = gateon.hf.obstruct(optimizer, gates, per=per)
        run = step(model, optimizer)
        run()
        gates.switch(1)
        assert all((A < 1).any() for A in handle.applied.values())
        return run

    variants = {"plain": plain()} | {f"per {per}": obstructed(per) for per in ("unit", "parameter")}
    table = measure.ratios(measure.interleaved(variants, options.rounds), "plain")
    measure.show(table)
    settings = {
        "network": "MiniLM-L6, mean of tokens, one Linear",
        "batch": options.batch,
        "length": options.length,
        "optimizer": "AdamW",
        "rounds": options.rounds,
        "plain": "every weight is trained",
        "gated": "embeddings and attention fixed",
    }
    measure.write("cost/hf-step", settings, table, "python benchmarks/hf_step.py")


if __name__ == "__main__":
    main()
