"""Runs killed with SIGKILL again and again, each time resumed: what they leave must be, byte for byte but for times, what an
uninterrupted run leaves.

    python benchmarks/torture.py                       50 kills of each variant, with a record
    python benchmarks/torture.py --kills 4 --variants n-gateon --dry

A run of three tasks on 5,000 digits writes a checkpoint every fiftieth of a second. A process
killed at random moments, in the middle of writing a checkpoint, or while it measures leaves its
directory as it is; one whose terminal is closed (SIGHUP) saves and ends; the next one goes on
there. When the run is finished its record and its last checkpoint are compared, and another run
begins, until there were enough kills.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import measure
from gateon.runs.folder import checkpoints
from gateon.runs.run import Interrupted, Quiet
from gateon.runs.specification import Specification
from gateon.runs.specified import learn
from gateon.streams import Stream

MOMENTS = ("anywhere", "anywhere", "writing", "measuring", "hangup")
STOPPED = 75
# exit codes of what was killed, hung up before it began, or hung up and saved
ENDED = (
    -signal.SIGKILL,
    -signal.SIGHUP,
    STOPPED,
)
VARIANTS: dict[str, dict[str, Any]] = {  # what is run, by what it asks for
    "n-gateon": {"method.name": "n-gateon"},
    "p-gateon": {"method.name": "p-gateon"},
    "finetune": {"method.name": "finetune"},
    "isolated": {"method.name": "isolated"},
    "inferred": {"method.name": "n-gateon", "detector.contexts": "inferred"},
    "ewc": {"method.name": "ewc"},
    "xdg+si": {"method.name": "xdg+si"},
    "hat": {"method.name": "hat"},
    "rmn": {"method.name": "rmn"},
    "dendrites": {"method.name": "dendrites"},
    "lwf": {"method.name": "lwf"},
    "replay": {"method.name": "replay"},
    "zoo": {"method.name": "zoo"},
}


class Tells(Quiet):
    """Leaves a mark while a task is being measured, so that the killer knows."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def begin(self, name: str, steps: Sequence[int], at: int) -> None:
        self.steps = steps
        self.mark.unlink(missing_ok=True)

    def step(self, task: int, step: int, loss: float) -> None:
        if step == self.steps[task]:
            self.mark.touch()

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        self.mark.unlink(missing_ok=True)


def go(asked: Specification, stream: Stream, out: Path, save_every: float) -> None:
    """The run, or the rest of it."""
    try:
        _learn(asked, stream, out, save_every)
    except Interrupted:
        sys.exit(STOPPED)


def _learn(asked: Specification, stream: Stream, out: Path, save_every: float) -> None:
    learn(
        asked,
        stream,
        asked.make_learner(stream),
        out,
        save_every=save_every,
        progress=Tells(out.with_suffix(".measuring")),
    )


def killed(process: Any, out: Path, moment: str, draw: random.Random, longest: float) -> bool:
    """Kill the process at such a moment; whether it was still alive then."""
    begin, wait = time.monotonic(), draw.uniform(0.0, longest)
    while process.is_alive():
        passed = time.monotonic() - begin
        if moment in ("anywhere", "hangup") and passed > wait:
            break
        if passed > wait / 4 and moment == "writing" and any(out.glob("*.part")):
            break
        if moment == "measuring" and out.with_suffix(".measuring").exists():
            time.sleep(draw.uniform(0.0, 0.05))
            break
        time.sleep(0.0002)
    if (
        moment == "hangup" and process.is_alive()
    ):  # its terminal is closed: it saves and ends by itself
        os.kill(process.pid, signal.SIGHUP)
    else:
        process.kill()
    process.join()
    return process.exitcode in ENDED


def left(out: Path) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """The record without times; the header of the last checkpoint without times; the bytes of its tensors."""
    record = json.loads((out / "record.json").read_text())
    del record["seconds"], record["environment"]["time"]
    content = checkpoints(out)[0].read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    held = header["__metadata__"]
    del held["part:times"], held["sha256"]
    held["gateon"] = json.loads(held["gateon"])
    del held["gateon"]["parts"]["times"]
    return record, header, content[start:]


def torture(asked: Specification, kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Kill and resume runs until there were enough kills; what was done and whether everything was equal."""
    stream = asked.make_stream()
    known = None if asked.detector.contexts == "inferred" else 0
    # what torch loads at first use
    asked.make_learner(stream).observe(stream[0].train.x[:50], stream[0].train.y[:50], known)
    fork = multiprocessing.get_context("fork")
    draw = random.Random(f"{seed} {asked.method.name}")
    process = fork.Process(target=go, args=(asked, stream, folder / "whole", 0.05))
    begin = time.monotonic()
    process.start()
    process.join()
    seconds = time.monotonic() - begin
    expected = left(folder / "whole")
    done: Counter[str] = Counter()
    runs = different = 0
    while done.total() < kills:
        out = folder / f"killed-{runs}"
        while not (out / "record.json").exists():
            process = fork.Process(target=go, args=(asked, stream, out, 0.02))
            process.start()
            if done.total() < kills:
                moment = draw.choice(MOMENTS)
                done[moment] += killed(process, out, moment, draw, seconds / 3)
            else:
                process.join()
            if process.exitcode not in (0, *ENDED):
                raise SystemExit(f"A resumed run failed: see above ({out}).")
        runs += 1
        different += left(out) != expected
        shutil.rmtree(out)
    return {"kills": done.total(), **{f"kills {k}": done[k] for k in sorted(set(MOMENTS))}} | {
        "runs": runs,
        "runs that differ": different,
        "seconds uninterrupted": round(seconds, 2),
        "seconds in all": round(time.monotonic() - begin, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="write no record")
    options = parser.parse_args()
    torch.set_num_threads(1)  # before anything is computed: threads do not survive a fork
    rows = []
    for name in options.variants.split(","):
        asked = Specification.from_options(
            {
                "stream.name": "permuted-mnist",
                "network.hidden": (64, 64),
                "training.steps": options.steps,
                "training.batch": 50,
                "measuring.curves": 40,
                "stream.data": "mnist-5k",
                "training.threads": 1,
                **VARIANTS[name],
            }
        )
        with tempfile.TemporaryDirectory() as folder:
            rows.append(
                {"variant": name} | torture(asked, options.kills, options.seed, Path(folder))
            )
        print(rows[-1], flush=True)
    if not options.dry:
        settings = {
            "tasks": 3,
            "steps": options.steps,
            "hidden": [64, 64],
            "batch": 50,
            "seed": options.seed,
            "data": "mnist-5k",
            "kills": options.kills,
        }
        measure.write("reliability/torture", settings, rows, f"python {' '.join(sys.argv)}")
    return int(any(row["runs that differ"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
