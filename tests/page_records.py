"""What runs, living models and reproduced tables leave, made without any training."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gateon.life.card import card
from gateon.life.settings import Settings
from gateon.life.store import Store
from gateon.life.task import Part, Task
from gateon.runs.identity import NUMERICS
from gateon.runs.record import TRACE, Record
from gateon.storage import checkpoint
from gateon.tracing.trace import Trace

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028\x1b[31m"


def left(folder, accuracy, *, method="ewc", seed=0, **changes):
    """A directory as a run leaves it."""
    asked = {"seed": seed, "stream": {"name": "permuted-mnist"}, "method": {"name": method}}
    record = Record(
        f"permuted-mnist {method}",
        asked | changes.pop("asked", {}),
        {"name": "mnist"},
        tasks=changes.pop("tasks", [f"task {k}" for k in range(len(accuracy))]),
        identities=changes.pop("identities", list(range(len(accuracy)))),
        contexts=changes.pop("contexts", list(range(len(accuracy)))),
        accuracy=accuracy,
        seconds=[{"train": 2.0, "evaluate": 1.0}] * len(accuracy),
        curves=[[] for _ in accuracy],
        numerics=changes.pop("numerics", NUMERICS),
        command=changes.pop("command", "gateon run permuted-mnist"),
        **changes,
    )
    folder.mkdir(parents=True, exist_ok=True)
    record.save(folder / "record.json")
    return folder


def falling(tasks, lost=0.01):
    """Accuracies of tasks that each lose a little with every later one."""
    return [[0.95 - lost * (k - j) for j in range(k + 1)] for k in range(tasks)]


def inside(folder, tasks, units=40, steps=20):
    """Gates in a checkpoint and a trace of a run, as if units were taken task by task."""
    draw = np.random.default_rng(0)
    gates = torch.tensor(draw.normal(size=(tasks, units)), dtype=torch.float32)
    state = {
        "learner": {"model": {"1.context_gate.weight": gates, "1.weight": torch.ones(units, 10)}}
    }
    checkpoint.save(state, folder / f"checkpoint-{tasks:04}-000000.safetensors")
    trace = Trace({"1": units}, {"1": range(units)}, every=1)
    for task in range(tasks):
        trace.begin_task(task, task * steps)
        for step in range(steps):
            taken = np.arange(units) < units * (task + step / steps) / tasks
            gain = (np.arange(units) * tasks // units == task).astype(float)
            activity = gain * draw.random(units)
            trace.add(
                task * steps + step,
                task,
                {"1": np.stack([gain, activity, 3 * activity, np.where(taken, 0.02, 1.0)])},
            )
    trace.save(folder / TRACE)
    return folder


def unfinished(folder, accuracy, tasks, method="ewc"):
    """A directory of a run that is at work, as its checkpoint leaves it."""
    count = len(accuracy)
    names = [f"task {k}" for k in range(count)]
    found = {
        "tasks": names,
        "identities": list(range(count)),
        "contexts": list(range(count)),
        "switches": [],
        "accuracy": accuracy,
        "macro_f1": accuracy,
        "density": [{}] * count,
        "availability": [{}] * count,
        "curves": [[]] * count,
        "losses": [[]] * count,
        "labels": [[]] * count,
        "samples": [10] * count,
        "isolated": None,
        "isolated_macro_f1": None,
    }
    state = {
        "specification": {"stream": {"name": "permuted-mnist"}, "method": {"name": method}},
        "data": {"name": "mnist"},
        "numerics": NUMERICS,
        "inputs": {"shape": [784], "classes": 10, "tasks": tasks},
        "position": {"task": count, "step": 7, "ended": False, "identities": list(range(count))},
        "found": found,
        "times": {"trained": 0.5, "seconds": [{"train": 2.0, "evaluate": 1.0}] * count},
        "learner": {"model": {}},
    }
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.save(state, folder / f"checkpoint-{count:04}-000007.safetensors")
    return folder


TASKS = {
    "banking": Task("banking", (Part(0, ("stolen", "limit"), (0, 1)),), 400, 1, held=200),
    "travel": Task("travel", (Part(1, ("late", "lost"), (2, 3)),), 300, 1, held=200),
}


def living(folder: Path, tasks=None, room=0.8) -> Path:
    """A directory as `gateon learn` leaves it, task by task."""
    then = {"then": 0.95, "now": 0.95, "untold": 0.94, "learned": "2026-11-19T04:00:00+00:00"}
    tasks = [replace(task, **then) for task in TASKS.values()] if tasks is None else tasks
    store = Store(folder, card)
    for count in range(1, len(tasks) + 1):
        known = tasks[:count]
        gates = torch.tensor(np.random.default_rng(1).normal(size=(count, 20)))
        left_now = 1 - (1 - room) * count / len(tasks)
        about = {
            "kind": "texts",
            "columns": {"text": "message"},
            "settings": Settings().state(),
            "front": {},
            "tasks": [task.state() for task in known],
            "shape": [20],
            "inputs": 20,
            "outputs": 2 * count,
            "room": {"1": left_now},
        }
        lesson = {
            "task": known[-1].name,
            "new": True,
            "source": f"{known[-1].name}.csv",
            "rows": known[-1].samples,
            "labels": 2,
            "added": [],
            "decided": "",
            "epochs": 9,
            "steps": 90,
            "seconds": 3.0,
            "accuracy": known[-1].then,
            "sha256": "ab" * 32,
            "now": {task.name: task.now for task in known},
            "room": {"1": left_now},
        }
        event = {
            "when": f"2026-11-19T04:0{count % 10}:00+00:00",
            "what": "learn",
            "lessons": [lesson],
        }
        network = {"model": {"1.context_gate.weight": gates}}
        with store.changing():
            store.commit({"about": about, "network": network}, event)
    return folder


def reproduced(folder, **changes):
    """A directory as `gateon reproduce` leaves it."""
    measure = {"mean": 0.9, "spread": 0.01, "each": [0.89, 0.91]}
    entry = {
        "row": "EWC",
        "column": "best",
        "stream": "permuted-mnist",
        "seeds": [0, 1],
        "settings": {"stream": {"name": "permuted-mnist"}, "method": {"name": "ewc"}},
        "made": [{"commit": "0123456789abcdef"}],
        "numerics": NUMERICS,
        "measures": {"continual_accuracy": measure, "forgetting_rate": measure | {"mean": 0.02}},
    }
    content = {
        "name": "table-x",
        "title": "A table",
        "scale": "quick",
        "printed": "the paper",
        "rows": ["EWC", "SI"],
        "columns": ["best"],
        "streams": ["permuted-mnist"],
        "measures": ["continual_accuracy", "forgetting_rate"],
        "paper": {"EWC": {"permuted-mnist": {"continual_accuracy": 89.0}}, "SI": {}},
        "differences": ["steps: 60 (the paper: 250)."],
        "entries": [entry, entry | {"row": "SI"}],
        "command": "gateon reproduce table-x",
        "environment": {"python": "3.11"},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_text(json.dumps(content | changes))
    return folder


def held(text):
    """The facts inside a page."""
    return json.loads(re.search(r'id="facts">(.*?)</script>', text, re.S)[1])
