"""Checkpoints that pass every sha256 and hold something else: shapes, kinds, values and structure changed, then resumed by `run`.

    python benchmarks/fuzz_states.py --inputs 300 --variants n-gateon        in this process

Each must go on for a step or be refused in a sentence that names the file. Code that is not
Python's may end the whole process: benchmarks/fuzz.py runs this one in others, and counts those
that die.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gateon.learners.lamol import Lamol
from gateon.runs.folder import checkpoints
from gateon.runs.run import Interrupted, Quiet
from gateon.runs.specification import Specification
from gateon.runs.specified import learn
from gateon.storage import checkpoint
from gateon.streams import Split, Stream
from gateon.streams.base import assemble

SECONDS = 10.0
SMALL: dict[str, Any] = {
    "network.hidden": (6, 5),
    "training.steps": 4,
    "training.batch": 8,
    "training.threads": 1,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "n-gateon": {"method.name": "n-gateon", "method.density": 0.5},
    "p-gateon": {"method.name": "p-gateon", "method.density": 0.5},
    "adamw": {
        "method.name": "n-gateon",
        "training.optimizer": "adamw",
        "network.heads": "per-task",
    },
    "sgd": {"method.name": "finetune", "training.optimizer": "sgd", "training.schedule": "linear"},
    "inferred": {
        "method.name": "n-gateon",
        "detector.contexts": "inferred",
        "method.density": 0.5,
        "training.steps": 12,
    },
    "ewc": {"method.name": "ewc"},
    "xdg+si": {"method.name": "xdg+si"},
    "hat": {"method.name": "hat"},
    "rmn": {"method.name": "rmn"},
    "dendrites": {"method.name": "dendrites"},
    "lwf": {"method.name": "lwf"},
    "ogd": {"method.name": "ogd"},
    "replay": {"method.name": "replay"},
    "isolated": {"method.name": "isolated"},
    "zoo": {"method.name": "zoo", "method.tasks": 2},
    "lamol": {"training.steps": 3},
}
VALUES = (
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        3,
        2**31,
        2**40,
        2**62,
        10**30,
        -0.5,
        0.5,
        1e308,
        float("nan"),
        float("inf"),
    ),
    *("", "x", "lr", [], {}, [[]], [None], {"a": 1}, [0] * 50, {0: 1}, [[0.5]] * 9),
)
KINDS = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


class Stops(Quiet):
    """Stops a run after so many steps in all."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self, task: int, step: int, loss: float) -> None:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGINT)


def tasks(folder: Path) -> Path:
    """Three small tasks of three classes."""
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(3):
        draw, y = np.random.default_rng(k), np.arange(30) % 3
        x = (draw.normal(size=(30, 4)) + 3 * y[:, None]).astype(np.float32)
        np.savez(folder / f"task{k}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return folder


def texts() -> Stream:
    """Three tasks of texts of six tokens, of which the first one is the label."""

    def split(k: int, part: str) -> Split:
        draw = torch.Generator().manual_seed(10 * k + len(part))
        y = torch.randint(0, 2, (30,), generator=draw)
        return Split(
            torch.cat([(y + 1)[:, None], torch.randint(3, 20, (30, 5), generator=draw)], 1),
            y,
            lengths=torch.full((30,), 6),
        )

    settings = {"stream": "texts"}
    make = lambda k: assemble(f"task{k}", k, lambda part: split(k, part))  # noqa: E731
    return Stream("texts", 3, 2, (6,), settings, {"name": "texts", "sha256": "0"}, make, split)


def language_model() -> Any:
    """A tiny GPT-2 that learns by LAMOL."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {
        "vocab_size": 20,
        "n_embd": 8,
        "n_layer": 1,
        "n_head": 1,
        "n_positions": 32,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    model = GPT2LMHeadModel(GPT2Config(**sizes))
    return Lamol(
        model, optimizer=partial(torch.optim.AdamW, lr=1e-3), samples=30, classes=2, share=0.5
    )


class Target:
    """Runs of one variant, stopped in the middle of the second task; one of them is changed and gone on with."""

    def __init__(self, name: str, folder: Path) -> None:
        os.chdir(folder)
        own = {"stream.name": f"own:{tasks(folder / 'data').relative_to(folder)}"}
        self.asked = Specification.from_options(own | SMALL | VARIANTS[name])
        self.stream = texts() if name == "lamol" else self.asked.make_stream()
        self.make = (
            language_model if name == "lamol" else lambda: self.asked.make_learner(self.stream)
        )
        self.out = folder / name
        self.go(Stops(self.asked.training.steps + 2))
        (self.path,) = checkpoints(self.out)[:1]
        for other in checkpoints(self.out)[1:]:
            other.unlink()
        self.state = checkpoint.load(self.path)

    def go(self, progress: Quiet) -> None:
        try:
            learn(self.asked, self.stream, self.make(), self.out, progress=progress)
        except Interrupted:
            return
        raise AssertionError("the run was not stopped")

    def attempt(self, state: dict[str, Any]) -> str:
        """What came of going on: "read", "refused", or what went wrong."""
        for path in self.out.iterdir():
            path.unlink()
        try:
            checkpoint.save(state, self.path)
        except (TypeError, ValueError, RecursionError, KeyError):
            return "cannot be written"
        try:
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            self.go(Stops(1))
        except TimeoutError:
            return "takes too long"
        except (ValueError, FloatingPointError) as error:
            told = str(error)
            return (
                "refused"
                if self.path.name in told and "\n" not in told
                else f"does not name the file: {told}"
            )
        except BaseException as error:
            return f"{type(error).__name__}: {str(error)[:200]}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return "read"


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every table or list in a state with each of its keys."""
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    for key in keys:
        yield value, key
        yield from places(value[key])


def other_tensor(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """The same with another shape, kind, or other numbers."""
    kind = draw.randrange(6)
    shape = list(tensor.shape)
    if kind == 0 and shape:  # longer or shorter along one axis
        axis = draw.randrange(len(shape))
        shape[axis] = max(
            0, draw.choice((shape[axis] - 1, shape[axis] + 1, 2 * shape[axis], 0, 1, 1000))
        )
        return torch.zeros(shape, dtype=tensor.dtype)
    if kind == 1:
        return (
            tensor.reshape(draw.choice(([-1], [1, *shape], [*shape, 1], shape[::-1])))
            if tensor.numel()
            else torch.zeros(3)
        )
    if kind == 2:
        return tensor.to(draw.choice(KINDS))
    if kind == 3:
        return torch.zeros(draw.choice(([], [0], [1], [7], [2, 2], [100, 100])), dtype=tensor.dtype)
    changed = tensor.clone().reshape(-1)
    if len(changed):
        at = draw.randrange(len(changed))
        value = draw.choice((0, 1, -1, 7, 1000, 2**31, 2**62, 1e30, float("nan"), float("inf")))
        if tensor.is_floating_point() or isinstance(value, int):
            changed[at] = (
                min(value, torch.iinfo(tensor.dtype).max)
                if tensor.dtype in (torch.uint8, torch.int64)
                else value
            )
        else:
            changed[at] = 3
    return changed.reshape(shape)


def mutated(state: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """One to three changes anywhere in a state; its parts are as likely to be changed as its many tensors."""
    state = copy.deepcopy(state)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        node: Any = state
        key: Any = draw.choice(
            ["position", "found", "times", "learner", "learner", "learner", "learner", "learner"]
        )
        while (
            isinstance(node.get(key) if isinstance(node, dict) else node[key], dict | list)
            and draw.random() < 0.85
        ):
            inner = node[key]
            if not inner:
                break
            node, key = (
                inner,
                draw.choice(list(inner)) if isinstance(inner, dict) else draw.randrange(len(inner)),
            )
        if key not in node if isinstance(node, dict) else key >= len(node):
            continue
        held, kind = node[key], draw.randrange(8)
        if isinstance(held, torch.Tensor) and kind < 6:
            node[key] = other_tensor(held, draw)
        elif kind == 6 and isinstance(node, dict):
            del node[key]
        elif kind == 6:
            node.append(copy.deepcopy(held))
        elif kind == 7 and isinstance(node, dict):
            node[draw.choice(("x", "step", "0", 0, 10**9, f"{key}_1"))] = copy.deepcopy(held)
        elif kind == 5:  # something from elsewhere in the state
            other, name = draw.choice(list(places(state)))
            node[key] = copy.deepcopy(other[name])
        else:
            node[key] = copy.deepcopy(draw.choice(VALUES))
    return state


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError


def fuzz(
    name: str, folder: Path, inputs: range, seed: int, note: Path | None = None
) -> dict[str, Any]:
    """Change and go on so many times; how it went. `note` names the input at work, for whoever finds this process dead."""
    signal.signal(signal.SIGALRM, _too_long)
    target = Target(name, folder)
    assert target.attempt(target.state) == "read", name
    outcomes: Counter[str] = Counter()
    told, slowest = [], 0.0
    for n in inputs:
        if note is not None:
            note.write_text(str(n))
        state = mutated(target.state, random.Random(f"{seed} {name} {n}"))
        start = time.monotonic()
        outcome = target.attempt(state)
        slowest = max(slowest, time.monotonic() - start)
        known = outcome in ("read", "refused", "cannot be written")
        outcomes[
            "refused" if outcome == "cannot be written" else outcome if known else "failed"
        ] += 1
        if not known:
            told.append(f"{name} input {n}: {outcome}")
            print(told[-1], file=sys.stderr, flush=True)
    return {
        **{key: outcomes[key] for key in ("read", "refused", "failed")},
        "slowest": round(slowest, 4),
        "told": told,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--note", type=Path)
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        for name in options.variants.split(","):
            inputs = range(options.first, options.first + options.inputs)
            found[name] = fuzz(
                name, Path(folder), inputs, options.seed, options.note and options.note.resolve()
            )
    print(json.dumps(found))
    return int(any(row["failed"] for row in found.values()))


if __name__ == "__main__":
    sys.exit(main())
