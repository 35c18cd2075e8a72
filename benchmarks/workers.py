"""Eight small runs with two workers against one after the other, and nodes that are lost.

    python benchmarks/workers.py                        both, with records
    python benchmarks/workers.py speed --rounds 1 --dry
    python benchmarks/workers.py nodes --kills 4 --dry

speed: `compare` of eight runs of 2 x 400 units on permuted MNIST, interleaved: one after the other
in one process, in two processes, and as tasks of a local Ray cluster of two nodes with one core
each, whose start is not counted. All three must leave the same records. Alone on two cores, or the
figures mean nothing. Beside each stand the seconds its runs spent training, in all: two steps at
once share caches and memory, and how much slower that makes them bounds what two workers can gain.

nodes: two runs on that cluster, of which one node is killed at a random moment and another one
added, again and again. Each run must finish and leave the record of one that was not disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")  # pages about every node that dies

import torch

import measure
from gateon.runs.record import Record
from gateon.runs.specification import Specification
from gateon.workers.alike import alike
from gateon.workers.board import NoBoard
from gateon.workers.carry import carry_out
from gateon.workers.comparison import compare, pieces_of
from gateon.workers.engine import Engine
from gateon.workers.on_ray import Cluster
from gateon.workers.plan import Listed

METHODS = ("n-gateon", "p-gateon", "finetune", "si")
SMALL: dict[str, Any] = {
    "stream.name": "permuted-mnist",
    "stream.data": "mnist-5k",
    "network.hidden": (400, 400),
    "training.batch": 200,
    "training.threads": 1,
}


@contextmanager
def two_nodes() -> Iterator[Any]:
    """A head that only plans, and two nodes of one core."""
    from ray.cluster_utils import Cluster as Local

    head = {
        "num_cpus": 0,
        "include_dashboard": False,
        "_system_config": {"health_check_failure_threshold": 20},
    }
    local = Local(initialize_head=True, head_node_args=head)
    nodes = [local.add_node(num_cpus=1), local.add_node(num_cpus=1)]
    try:
        yield local, nodes
    finally:
        local.shutdown()


def found(record: Record) -> str:
    """All that must be the same wherever a run was made."""
    kept = {k: v for k, v in asdict(record).items() if k not in ("seconds", "environment")}
    return json.dumps(kept)


def speed(rounds: int, tasks: int, steps: int) -> dict[str, Any]:
    asked = Specification.from_options(SMALL | {"stream.tasks": tasks, "training.steps": steps})
    with two_nodes() as (local, _):
        engines = {
            "one after the other": Engine(),
            "two workers": Engine(workers=2),
            "Ray, two nodes": Engine(on=f"ray:{local.address}"),
        }
        records: dict[str, set[str]] = {name: set() for name in engines}
        training: dict[str, list[float]] = {name: [] for name in engines}

        def variant(name: str) -> Callable[[], None]:
            def run() -> None:
                torch.set_num_threads(1)
                with tempfile.TemporaryDirectory() as folder:
                    made = compare(asked, METHODS, 2, Path(folder), engine=engines[name])
                done = [record for several in made.values() for record in several]
                records[name].add("\n".join(found(record) for record in done))
                training[name].append(sum(task["train"] for r in done for task in r.seconds))

            return run

        seconds = measure.interleaved({n: variant(n) for n in engines}, rounds, warm_up=0)
    base = seconds["one after the other"]
    return {
        "runs": len(METHODS) * 2,
        "tasks": tasks,
        "steps": steps,
        "seconds": seconds,
        "seconds of training, all runs": training,
        "times as fast": {
            name: statistics.median(a / b for a, b in zip(base, values, strict=True))
            for name, values in seconds.items()
        },
        "records identical": len(set.union(*records.values())) == 1,
        "load": os.getloadavg(),
    }


class Watch(NoBoard):
    """Remembers how runs began and ended, and does something at every report."""

    def __init__(self, report: Callable[[], None]) -> None:
        self.report = report
        self.begun: list[tuple[str, int]] = []
        self.ends: list[tuple[str, str]] = []

    def told(self, name: str, event: str, told: Sequence[Any]) -> None:
        if event == "begin":
            self.begun.append((name, told[2]))
        self.report()

    def ended(self, name: str, how: str) -> None:
        self.ends.append((name, how))


def nodes(kills: int, seed: int = 0) -> dict[str, Any]:
    """Kill nodes at random moments until there were enough."""
    draw = random.Random(seed)
    asked = Specification.from_options(SMALL | {"stream.tasks": 6, "training.steps": 150})
    runs = {f"{seed}": asked.with_options({"seed": seed}) for seed in range(4)}
    done: dict[str, Any] = {"killed": 0, "finished": 0, "went on": 0, "differ": 0, "run again": 0}
    with tempfile.TemporaryDirectory() as folder, two_nodes() as (local, alive):
        whole = Path(folder) / "whole"
        Engine().carry_out(Listed(pieces_of(runs, whole)), whole)
        expected = {name: found(Record.load(whole / name / "record.json")) for name in runs}
        while done["killed"] < kills:
            out, due = Path(tempfile.mkdtemp(dir=folder)), [time.monotonic() + draw.uniform(1, 8)]

            def kill(due: list[float] = due) -> None:  # here: Ray adds no node in a thread
                if time.monotonic() > due[0] and done["killed"] < kills:
                    local.remove_node(alive.pop(draw.randrange(2)), allow_graceful=False)
                    alive.append(local.add_node(num_cpus=1))
                    done["killed"] += 1
                    due[0] = time.monotonic() + draw.uniform(1, 8)

            watch = Watch(kill)
            with alike(out) as wanted:
                pool = Cluster(f"ray:{local.address}", wanted, workers=None)
                carry_out(Listed(pieces_of(runs, out)), pool, watch)
            for name in runs:
                same = found(Record.load(out / name / "record.json")) == expected[name]
                done["finished"] += 1
                done["differ"] += not same
                mine = [at for one, at in watch.begun if one == name]
                done["went on"] += sum(at > 0 for at in mine)
            seen: set[str] = set()
            for name, how in watch.ends:  # what is done must not be handed out again
                done["run again"] += name in seen
                seen |= {name} if how == "done" else set()
            print(json.dumps(done), flush=True)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["speed", "nodes"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--dry", action="store_true", help="write no record")
    chosen = parser.parse_args()
    if chosen.what != "nodes":
        done = speed(chosen.rounds, chosen.tasks, chosen.steps)
        print(json.dumps(done, indent=1))
        if not chosen.dry:
            command = f"python benchmarks/workers.py speed --rounds {chosen.rounds}"
            measure.write("cost/workers", SMALL, done, command)
    if chosen.what != "speed":
        done = nodes(chosen.kills)
        if not chosen.dry:
            command = f"python benchmarks/workers.py nodes --kills {chosen.kills}"
            measure.write("reliability/lost-nodes", SMALL, done, command)


if __name__ == "__main__":
    main()
