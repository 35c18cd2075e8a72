"""A step of two processes with gates and obstruction, beside that of torch's DistributedDataParallel without.

    python benchmarks/parallel_step.py [--rounds 40]

784-2000-2000-10, batches of 1000 of which each process has half, Adam, one thread a process, gloo.
Every gate is open and availabilities are below 1, so that nothing is left out. First in a user's
own loop, DistributedDataParallel around the model; then in a Learner, as `torchrun -m gateon run`
has it.
"""

from __future__ import annotations

import argparse
import socket
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

import gateon
import measure
from gateon.parallel.processes import current

ADAM = partial(torch.optim.Adam, lr=1e-3)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(784, 2000), nn.ReLU(), nn.Linear(2000, 2000), nn.ReLU(), nn.Linear(2000, 10)
    )


def in_own_loop(x, y, per=None):
    """DistributedDataParallel, with gates and obstruction if asked."""
    model, mine = network(), current().share(len(x))
    gates = None if per is None else gateon.attach(model, contexts=2, density=1.0, start=0.9)
    wrapped, optimizer = nn.parallel.DistributedDataParallel(model), ADAM(model.parameters())
    if gates is not None:
        gateon.obstruct(optimizer, gates, per=per, rate=0.01, epsilon=0.5)

    def step() -> None:
        F.cross_entropy(wrapped(x[mine]), y[mine]).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    if gates is not None:
        gates.switch(1)
    return step


def in_learner(x, y, method=None):
    """A Learner that shares its batches."""
    learner = gateon.Learner(network(), optimizer=ADAM, method=method, processes=current())
    learner.observe(x, y, context=0)
    return lambda: learner.observe(x, y, context=1)


def work(rank: int, port: int, rounds: int, batch: int, to) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    x, y = torch.rand(batch, 784), torch.randint(0, 10, (batch,))
    torch.distributed.broadcast(x, 0)
    torch.distributed.broadcast(y, 0)
    steps = {"DistributedDataParallel": in_own_loop(x, y)}
    for per in ("unit", "parameter"):
        steps[f"with gates and obstruction per {per}"] = in_own_loop(x, y, per)
    steps["Learner, plain"] = in_learner(x, y)
    for per in ("unit", "parameter"):
        for density in (1.0, 0.5):
            opened = {"density": density} | ({"start": 0.9} if density == 1 else {})
            method = gateon.GateON(per=per, **opened)
            steps[f"Learner, GateON per {per}, density {density}"] = in_learner(x, y, method)

    def together(step):
        def run() -> None:
            torch.distributed.barrier()
            step()

        return run

    timed = {name: together(step) for name, step in steps.items()}
    seconds = measure.interleaved(timed, rounds)
    if rank == 0:
        to.put(seconds)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--dry", action="store_true", help="write no record")
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    to = context.Queue()
    pair = [
        context.Process(target=work, args=(rank, port, options.rounds, options.batch, to))
        for rank in range(2)
    ]
    for process in pair:
        process.start()
    table = measure.ratios(to.get(), "DistributedDataParallel")
    for process in pair:
        process.join()
    measure.show(table)
    settings = {"network": "784-2000-2000-10", "optimizer": "Adam", "processes": 2, **vars(options)}
    if not options.dry:
        measure.write(
            "cost/parallel-step",
            settings,
            table,
            f"python benchmarks/parallel_step.py --rounds {options.rounds}",
        )


if __name__ == "__main__":
    main()
