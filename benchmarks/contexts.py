"""Ten thousand contexts: what is on the device, a step, a switch and a checkpoint, wherever their rows are.

    python benchmarks/contexts.py
    python benchmarks/contexts.py --contexts 1 100 --rounds 3 --dry     a look, and no record

A network of 2 x 1,000 units with norms and n-GateON learns in one context at a time, as a sub-network
or at full width. All rows are on the device, in the memory of the host, or in a mapped file. Each
round takes a step in every network in turn, beside the same with one context; steps and switches are
timed by what they take of the processor. Bytes on the device are those of parameters, buffers and
what the optimizer remembers.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import torch

import gateon
import measure
from gateon.models import mlp
from gateon.storage import checkpoint

HIDDEN, INPUTS, BATCH, WARM_UP = (1000, 1000), 784, 100, 3
WAYS = {"sub-network": True, "full width": False}


def learner(contexts: int, where: str, compact: bool) -> gateon.Learner:
    """In its first context, with as many more."""
    torch.manual_seed(0)
    made = gateon.Learner(
        mlp(INPUTS, HIDDEN, 10, norm="context"),
        optimizer=partial(torch.optim.Adam, lr=5e-3, fused=True),
        method=gateon.GateON(),
        compact=compact,
    )
    gates = gateon.gates_of(made.model)
    gates.keep_rows("cpu")  # where adding one copies no others
    while gates.contexts < contexts:
        gates.add_context()
    gates.keep_rows(where)
    made.switch(0)
    return made


def bytes_of(tensors) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def on_device(made: gateon.Learner) -> int:
    remembered = [t for entry in made.optimizer.state.values() for t in entry.values()]
    network = made._work.network  # the sub-network is on the device beside the whole
    both = [made.model] if network is made.model else [made.model, network]
    held = [t for one in both for t in (*one.parameters(), *one.buffers())]
    return bytes_of([*held, *remembered])


def elsewhere(made: gateon.Learner) -> int:
    tables = [m.rows_of(name) for m in made.model.modules() for name in getattr(m, "kept", ())]
    return bytes_of(tables)


def timed(do) -> tuple[float, float]:
    """Milliseconds, by the clock and of the processor."""
    start, used = time.perf_counter(), time.process_time()
    do()
    return 1e3 * (time.perf_counter() - start), 1e3 * (time.process_time() - used)


def saved(made: gateon.Learner, folder: Path) -> dict[str, float]:
    """A checkpoint: megabytes, and the medians of three."""
    path = folder / "checkpoint.safetensors"
    both = [timed(lambda: checkpoint.save(made.state_dict(), path)) for _ in range(3)]
    return {
        "megabytes of a checkpoint": path.stat().st_size / 1e6,
        "milliseconds to write one": statistics.median(clock for clock, _ in both),
        "of the processor": statistics.median(used for _, used in both),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", type=int, nargs="+", default=[1, 100, 1000, 10_000])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--dry", action="store_true", help="write no record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    x, y = torch.randn(BATCH, INPUTS), torch.randint(0, 10, (BATCH,))
    drawn = torch.Generator().manual_seed(0)
    result: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for way, compact in WAYS.items():
            for where, place in (("device", "device"), ("memory", "cpu"), ("file", folder)):
                made = {n: learner(n, place, compact) for n in options.contexts}
                steps: dict[str, list[float]] = {str(n): [] for n in made}
                for _ in range(options.rounds + WARM_UP):
                    for n, one in made.items():
                        steps[str(n)].append(timed(partial(one.observe, x, y, 0))[1] / 1e3)
                kept = {n: seconds[WARM_UP:] for n, seconds in steps.items()}
                table = measure.ratios(kept, str(options.contexts[0]))
                for n, one in made.items():
                    row = {
                        "megabytes on the device": on_device(one) / 1e6,
                        "megabytes of rows elsewhere": elsewhere(one) / 1e6,
                        "milliseconds of a step": table[str(n)]["milliseconds"],
                        "step, to that with the fewest contexts": table[str(n)]["ratio"],
                        **saved(one, Path(folder)),
                    }
                    others = torch.randint(n, (options.rounds,), generator=drawn).tolist()
                    switches = [
                        timed(partial(one.switch, k))[1] for k in others if k != one.context
                    ]
                    if switches:
                        row["milliseconds of a switch"] = statistics.median(switches)
                    result.setdefault(f"{way}, {where}", {})[str(n)] = row
                    print(f"{way}, rows in {where}, {n} contexts")
                    for name, value in row.items():
                        print(f"    {name:45} {value:,.2f}", flush=True)
    if not options.dry:
        settings = {"hidden": HIDDEN, "inputs": INPUTS, "batch": BATCH, "method": "n-gateon"}
        settings |= {"contexts": options.contexts, "rounds": options.rounds}
        measure.write("cost/contexts", settings, result, "python benchmarks/contexts.py")


if __name__ == "__main__":
    main()
