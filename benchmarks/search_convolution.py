"""Settings of the convolutional networks, varied one at a time around a base, measured on validation data.

    python benchmarks/search_convolution.py cifar
    python benchmarks/search_convolution.py cifar-wide
    python benchmarks/search_convolution.py cifar-methods
    python benchmarks/search_convolution.py cnn

The first tasks of the stream, one seed; cifar and cnn with fewer steps than the tables. Trials that
are in the record already are not run again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import measure
from gateon.runs.specification import Specification
from gateon.runs.specified import run_specification

BASES: dict[str, dict[str, Any]] = {
    "cifar": {
        "stream": "split-cifar100",
        "tasks": 3,
        "depth": 10,
        "widen": 2,
        "steps": 144,
        "batch": 32,
        "optimizer": "sgd",
        "lr": 0.05,
        "density": 0.5,
        "rate": 0.02,
        "threads": 1,
        "part": "validation",
    },
    "cifar-wide": {
        "stream": "split-cifar100",
        "tasks": 3,
        "method": "p-gateon",
        "depth": 10,
        "widen": 20,
        "heads": "per-task",
        "steps": 216,
        "batch": 32,
        "optimizer": "adam",
        "lr": 3e-3,
        "density": 0.1,
        "start": 0.9,
        "steepness": 10.0,
        "shared": "first,group1*,group2*",
        "rescale": True,
        "rate": 0.3,
        "epsilon": 0.0,
        "obstruct_head": True,
        "prefer": 3.0,
        "threads": 1,
        "part": "validation",
    },
    "cifar-methods": {
        "stream": "split-cifar100",
        "tasks": 3,
        "method": "finetune",
        "depth": 10,
        "widen": 2,
        "heads": "per-task",
        "steps": 216,
        "batch": 32,
        "optimizer": "adam",
        "lr": 2e-3,
        "threads": 1,
        "part": "validation",
    },
    "cnn": {
        "stream": "rotated-mnist",
        "tasks": 3,
        "network": "cnn",
        "channels": (32, 64),
        "hidden": (500,),
        "steps": 150,
        "batch": 200,
        "density": 0.5,
        "rate": 0.01,
        "threads": 1,
        "data": "mnist",
        "part": "validation",
    },
}
STEEP = {"start": 0.9, "steepness": 10.0}
PER_UNIT = {"method": "n-gateon", "rate": "group3*=0.02,head=0.02,*=0.3"}
WIDER = {**PER_UNIT, "widen": 40, "density": 0.05}
HEIRS = {"inherit": True, "shared": None}
ALONE = dict.fromkeys(
    (
        "density",
        "start",
        "steepness",
        "shared",
        "rescale",
        "rate",
        "epsilon",
        "obstruct_head",
        "prefer",
    )
)
ALONE |= {"method": "isolated", "heads": "shared", "widen": 2}
TRIALS: dict[str, dict[str, dict[str, Any]]] = {
    "cifar": {
        "base": {},
        "lr 0.1": {"lr": 0.1},
        "lr 0.1, rate 0.05, head": {"lr": 0.1, "rate": 0.05, "obstruct_head": True},
        "isolated, lr 0.1": {"method": "isolated", "lr": 0.1, "density": None, "rate": None},
        "adam 0.005, rate 0.05, head": {
            "optimizer": "adam",
            "lr": 5e-3,
            "rate": 0.05,
            "obstruct_head": True,
        },
        "lr 0.1, rate 0.05, head, prefer 3": {
            "lr": 0.1,
            "rate": 0.05,
            "obstruct_head": True,
            "prefer": 3.0,
        },
        "lr 0.1, rate 0.05, head, density 0.25": {
            "lr": 0.1,
            "rate": 0.05,
            "obstruct_head": True,
            "density": 0.25,
        },
        "adam 0.005, density 0.75": {"optimizer": "adam", "lr": 5e-3, "density": 0.75},
        "isolated, adam 0.005": {
            "method": "isolated",
            "optimizer": "adam",
            "lr": 5e-3,
            "density": None,
            "rate": None,
        },
    },
    "cifar-wide": {
        "base": {},
        "every task its own units everywhere": {"shared": None},
        "weights drawn for the whole width": {"rescale": None},
        "per unit": {**PER_UNIT, "density": "group3*=0.05,*=0.1"},
        "per unit, in a network twice as wide": WIDER,
        "per unit, in a network twice as wide, lr 0.002": {**WIDER, "lr": 2e-3},
        "inheriting": {"inherit": True},
        "inheriting, every task its own units everywhere": HEIRS,
        "per unit, in a network twice as wide, inheriting, every task its own units everywhere": {
            **WIDER,
            **HEIRS,
        },
        "inheriting, every task its own units everywhere, lr 0.002": {**HEIRS, "lr": 2e-3},
        "per unit, in a network twice as wide, inheriting, every task its own units everywhere, lr 0.002": {
            **WIDER,
            **HEIRS,
            "lr": 2e-3,
        },
        "isolated, width 2": ALONE,
        "isolated, width 2, lr 0.002": {**ALONE, "lr": 2e-3},
    },
    "cifar-methods": {
        "HAT": {"method": "hat"},
        "HAT, strength 0.1": {"method": "hat", "strength": 0.1},
        "SI, strength 10": {"method": "si", "strength": 10.0},
        "SI, strength 100": {"method": "si", "strength": 100.0},
        "SI, strength 300": {"method": "si", "strength": 300.0},
        "SI, strength 1000": {"method": "si", "strength": 1000.0},
        "RMN": {"method": "rmn"},
        "RMN, smaller maps": {"method": "rmn", "settings": "high=0.8"},
        "RMN, smallest maps": {"method": "rmn", "settings": "high=0.7"},
    },
    "cnn": {
        "base": {},
        "gates nearly open, learning faster": STEEP,
        "per parameter, rate 0.1": {"method": "p-gateon", "rate": 0.1},
        "per parameter, rate 0.3": {"method": "p-gateon", "rate": 0.3},
        "per parameter, rate 0.3, gates nearly open, learning faster": {
            "method": "p-gateon",
            "rate": 0.3,
            **STEEP,
        },
        "per parameter, rate 0.3, gates nearly open, learning faster, inheriting": {
            "method": "p-gateon",
            "rate": 0.3,
            "inherit": True,
            **STEEP,
        },
        "isolated, the first task": {
            "method": "isolated",
            "density": None,
            "rate": None,
            "tasks": 1,
        },
    },
}


def measured(specification: Specification) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        record = run_specification(specification, Path(folder) / "run")
    names = ("continual_accuracy", "immediate_accuracy", "final_accuracy", "forgetting_rate")
    found = {name: record.summary[name] for name in names}
    sites = record.availability[-1].values()
    found["room"] = min((site["room"] for site in sites), default=1.0)
    return found | {"seconds": sum(s["train"] for s in record.seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=BASES)
    parser.add_argument("--only", help="these trials only, separated by semicolons")
    options = parser.parse_args()
    base, name = BASES[options.what], f"search/{options.what}"
    path = Path(__file__).parent.parent / "results" / name / "record.json"
    rows = json.loads(path.read_text())["result"] if path.exists() else []
    for label, changes in TRIALS[options.what].items():
        if any(row["label"] == label for row in rows) or (
            options.only and label not in options.only.split(";")
        ):
            continue
        rows.append(
            {"label": label, "changes": changes}
            | measured(Specification.from_options(base | changes))
        )
        print(
            {
                key: round(value, 4) if isinstance(value, float) else value
                for key, value in rows[-1].items()
            },
            flush=True,
        )
        measure.write(name, base, rows, f"python benchmarks/search_convolution.py {options.what}")


if __name__ == "__main__":
    main()
