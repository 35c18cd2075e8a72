"""Mutated files, read as a user's would be: each must be read or refused in a sentence that names it, fast and in little memory.

    python benchmarks/fuzz.py                       100,000 files and 20,000 states, with a record
    python benchmarks/fuzz.py --inputs 2000 --dry   fewer, and no record

A refusal is a ValueError or OSError whose message has the file's name in it. Anything else is a
failure: another exception, more than ten seconds, more memory than the bound, or a checkpoint that
is read as other than what was written. --keep has such inputs.

States are checkpoints that pass every sha256 and hold something else (benchmarks/fuzz_states.py).
They are gone on with in other processes, since what does not fit may end the whole process: that is
a failure too.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fuzz_states
import measure
from gateon import streams
from gateon.runs.record import Record
from gateon.runs.specification import Specification
from gateon.storage import checkpoint
from gateon.streams.data import sources

SECONDS = 10.0  # of one input at most
MEGABYTES = 300  # beyond what the process had before the first input
STRANGE = (
    b"",
    b"\x00" * 8,
    b"\xff" * 8,
    b"9" * 40,
    b"-1",
    b"1e999",
    b"NaN",
    b"null",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"../../x",
    b"\xed\xa0\x80",
)

VALUES = (
    None,
    True,
    -1,
    3,
    0.5,
    10**30,
    1e308,
    float("nan"),
    "x",
    [],
    {},
    [[]],
    [None],
    [[0.5]] * 9,
    {"a": [1]},
    "\ud800",
    [[[1]]],
)


@dataclass(frozen=True)
class Target:
    """A kind of file: its name, samples of it, and what reads it. `exact`: whatever is read must be what was written."""

    name: str
    samples: list[bytes]
    read: Callable[[Path], Any]
    exact: Any = None


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)


def targets() -> list[Target]:
    folder = Path(tempfile.mkdtemp())
    state = {
        "specification": {"stream": "own:data", "seed": 0},
        "position": {"task": 1, "step": 3, "identities": [0, 1]},
        "learner": {
            "model": {"weight": torch.arange(6.0).reshape(2, 3), "on": torch.tensor([True])},
            "state": {0: torch.zeros(2)},
        },
    }
    checkpoint.save(state, folder / "x")
    record = Record("run", {"seed": 3}, {"name": "mnist"}, tasks=["a", "b"], contexts=[0, 1])
    record.accuracy, record.macro_f1 = [[0.9], [0.7, 0.8]], [[0.9], [None, 0.8]]
    record.seconds = [{"train": 1.0, "evaluate": 0.1}] * 2
    record.save(folder / "record.json")
    Specification.from_options(
        {"stream.name": "permuted-mnist", "network.hidden": (8, 9), "method.density": 0.5}
    ).save(folder / "spec.toml")
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(12, 3)).astype(np.float32), np.arange(12) % 3
    arrays, packed = io.BytesIO(), io.BytesIO()
    np.savez(arrays, x_train=x, y_train=y, x_test=x, y_test=y)
    np.savez_compressed(packed, x_train=x, y_train=y, x_test=x, y_test=y)
    rows = [
        {"task": "a", "split": part, "features": x[n].tolist(), "label": int(y[n])}
        for n in range(12)
        for part in ("train", "test")
    ]
    lines = "\n".join(json.dumps(row) for row in rows).encode()
    images = draw.integers(0, 256, (5, 4, 4)).astype(np.uint8)
    sources.write_idx(folder / "idx", images)
    pixels, fine, coarse = draw.integers(0, 256, (2, 3072)).astype(np.uint8), [5, 99], [1, 19]
    binary = b"".join(
        bytes([c, f]) + p.tobytes() for p, f, c in zip(pixels, fine, coarse, strict=True)
    )
    return [
        Target(
            "checkpoint.safetensors",
            [(folder / "x").read_bytes()],
            checkpoint.load,
            checkpoint.load(folder / "x"),
        ),
        Target("record.json", [(folder / "record.json").read_bytes()], Record.load),
        Target("specification.toml", [(folder / "spec.toml").read_bytes()], Specification.load),
        Target(
            "own/task.npz",
            [arrays.getvalue(), packed.getvalue()],
            lambda path: streams.own(path.parent),
        ),
        Target("own.jsonl", [lines], streams.own),
        Target("own.jsonl.gz", [gzip.compress(lines, mtime=0)], streams.own),
        Target("idx", [(folder / "idx").read_bytes()], sources.read_idx),
        Target("idx.gz", [gzip.compress((folder / "idx").read_bytes(), mtime=0)], sources.read_idx),
        Target("cifar.bin", [binary], sources.read_cifar100_binary),
    ]


def mutated(content: bytes, draw: random.Random) -> bytes:
    """One to four changes: bits flipped, bytes overwritten, taken out, doubled, moved, words put in, the end cut off."""
    held = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4))):
        # Half of all changes near the beginning, where headers are.
        place = (
            draw.randrange(len(held) + 1)
            if draw.random() < 0.5
            else draw.randrange(min(len(held), 200) + 1)
        )
        length = draw.choice((1, 1, 2, 4, 8, 64, 1000))
        kind = draw.randrange(8)
        if kind == 0 and place < len(held):
            held[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            held[place : place + length] = draw.randbytes(length)
        elif kind == 2:
            del held[place : place + length]
        elif kind == 3:
            held[place:place] = held[place : place + length]
        elif kind == 4:
            other = draw.randrange(len(held) + 1)
            held[place : place + length] = held[other : other + length]
        elif kind == 5:
            held[place : place + 8] = draw.choice((1, 1 << 31, (1 << 32) - 1, 1 << 62)).to_bytes(
                8, draw.choice(("little", "big"))
            )
        elif kind == 6:
            held[place : place + draw.choice((0, length))] = draw.choice(STRANGE)
        else:
            del held[place:]
    return bytes(held)


def other_values(content: bytes, draw: random.Random) -> bytes:
    """JSON, one object a line or in all, with one or two values in it that are of another kind."""
    lines = content.splitlines() if content.startswith(b'{"task"') else [content]
    for _ in range(draw.choice((1, 1, 2))):
        at = draw.randrange(len(lines))
        whole = [json.loads(lines[at])]
        node: Any = whole
        key: Any = 0
        while isinstance(node[key], dict | list) and node[key] and draw.random() < 0.8:
            node = node[key]
            key = draw.choice(list(node)) if isinstance(node, dict) else draw.randrange(len(node))
        node[key] = draw.choice(VALUES)
        lines[at] = json.dumps(whole[0]).encode()
    return b"\n".join(lines)


def attempt(target: Target, path: Path, content: bytes) -> str:
    """What came of it: "read", "refused", or what went wrong."""
    path.write_bytes(content)
    try:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        found = target.read(path)
    except TimeoutError:
        return "takes too long"
    except (ValueError, OSError) as error:
        name = path.parent.name if target.name == "own/task.npz" else path.name
        return "refused" if name in str(error) else f"does not name the file: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return (
        "read"
        if target.exact is None or same(found, target.exact)
        else "read, but not as it was written"
    )


def states(name: str, count: int, seed: int, folder: Path) -> dict[str, Any]:
    """Go on with so many changed states of a variant; a process that dies is followed by another one, from the next input on."""
    row: dict[str, Any] = {
        "target": f"state of {name}",
        "inputs": count,
        "read": 0,
        "refused": 0,
        "failed": 0,
    }
    begin, first, slowest, note = time.monotonic(), 0, 0.0, folder / "note"
    while first < count:
        words = [
            "--variants",
            name,
            "--first",
            str(first),
            "--inputs",
            str(count - first),
            "--seed",
            str(seed),
            "--note",
            str(note),
        ]
        script = Path(__file__).parent / "fuzz_states.py"
        done = subprocess.run(
            [sys.executable, str(script), *words], stdout=subprocess.PIPE, text=True
        )
        if done.returncode not in (0, 1) or not done.stdout.strip():
            died = int(note.read_text())
            print(f"{name} input {died}: the process died with {done.returncode}", flush=True)
            row["failed"] += 1
            first = died + 1  # what came before it is not counted, but was tried
            continue
        found = json.loads(done.stdout)[name]
        slowest, first = max(slowest, found["slowest"]), count
        for key in ("read", "refused", "failed"):
            row[key] += found[key]
    return row | {"seconds": round(time.monotonic() - begin, 1), "slowest": slowest}


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1 << 20 if sys.platform == "darwin" else 1 << 10
    )


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--states", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("runs/fuzz"))
    parser.add_argument("--dry", action="store_true", help="write no record")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_long)
    rows, failures = [], 0
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        everything = targets()
        before = megabytes()
        for target in everything:
            draw = random.Random(f"{options.seed} {target.name}")
            path = Path(folder) / target.name
            path.parent.mkdir(exist_ok=True)
            for sample in target.samples:
                assert attempt(target, path, sample) == "read", target.name
            outcomes: Counter[str] = Counter()
            slowest, begin = 0.0, time.monotonic()
            for n in range(-(-options.inputs // len(everything))):
                sample = draw.choice(target.samples)
                content = (
                    other_values(sample, draw)
                    if sample.startswith(b"{") and draw.random() < 0.5
                    else mutated(sample, draw)
                )
                start = time.monotonic()
                outcome = attempt(target, path, content)
                slowest = max(slowest, time.monotonic() - start)
                outcomes[outcome if outcome in ("read", "refused") else "failed"] += 1
                if outcome not in ("read", "refused"):
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (
                        options.keep / f"{target.name.replace('/', '-')}-{options.seed}-{n}"
                    ).write_bytes(content)
                    print(f"{target.name} input {n}: {outcome}", flush=True)
            path.unlink()
            failures += outcomes["failed"]
            row = {
                "target": target.name,
                "inputs": outcomes.total(),
                **{k: outcomes[k] for k in ("read", "refused", "failed")},
            }
            rows.append(
                row | {"seconds": round(time.monotonic() - begin, 1), "slowest": round(slowest, 4)}
            )
            print(rows[-1], flush=True)
        grown = megabytes() - before
        for name in fuzz_states.VARIANTS:
            rows.append(
                states(
                    name,
                    -(-options.states // len(fuzz_states.VARIANTS)),
                    options.seed,
                    Path(folder),
                )
            )
            failures += rows[-1]["failed"]
            print(rows[-1], flush=True)
    print(
        f"{sum(row['inputs'] for row in rows)} inputs, {failures} failures, {grown:.0f} MB more at most than before the first"
    )
    if not options.dry:
        settings = {
            "seed": options.seed,
            "seconds at most": SECONDS,
            "megabytes at most": MEGABYTES,
        }
        measure.write(
            "reliability/fuzz",
            settings,
            {"targets": rows, "megabytes": round(grown, 1)},
            "python benchmarks/fuzz.py",
        )
    return int(bool(failures) or grown > MEGABYTES)


if __name__ == "__main__":
    sys.exit(main())
