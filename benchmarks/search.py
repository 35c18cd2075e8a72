"""What helps and what does not: settings varied one at a time around a base, measured on validation data.

    python benchmarks/search.py permuted-mnist per-parameter

784-2000-2000-10, five tasks of 250 batches of 1000 (or as many images in other batches), full
MNIST, one seed. Rows that are in the record already are not run again.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import measure
from gateon import GateON, Learner
from gateon.networks import mlp
from gateon.runs.run import run
from gateon.streams import open as open_stream

IMAGES = 250_000  # of a task, whatever the batch


@dataclass(frozen=True)
class Setting:
    """Everything that is varied."""

    per: Literal["unit", "parameter"]
    epsilon: float
    density: float = 0.25
    first_density: float | None = None  # of the first hidden layer, where it is another
    rate: float = 0.01
    floor: float = 0.0
    apply: Literal["step", "switch"] = "switch"
    relevance: str = "gradient"
    width: float = 0.3
    power: int = 1
    head: bool = False
    lr: float = 5e-3
    batch: int = 1000
    warm_up: int = 0
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    label_smoothing: float = 0.1
    input_dropout: float = 0.0
    hidden_dropout: float = 0.0
    noise: float = 0.0
    affine: bool = False
    unit_length: bool = False
    norm: Literal["context", "batch", "none"] = "context"
    prefer_available: float = 0.0

    @property
    def steps(self) -> int:
        return IMAGES // self.batch


VARIED: dict[str, list[Any]] = {
    "label_smoothing": [0.0, 0.05, 0.2],
    "density": [0.1, 0.15, 0.35, 0.5],
    "first_density": [0.15, 0.4],
    "rate": [0.001, 0.003, 0.03, 0.1],
    "epsilon": [0.0, 0.1, 0.25, 0.5, 1.0],
    "floor": [0.01, 0.05],
    "apply": ["step"],
    "relevance": ["activity", "next-layer"],
    "width": [0.1, 1.0],
    "power": [2],
    "head": [True],
    "lr": [2e-3, 1e-2],
    "batch": [500, 2000],
    "warm_up": [25],
    "schedule": ["linear", "constant"],
    "input_dropout": [0.1],
    "hidden_dropout": [0.1],
    "noise": [0.1],
    "affine": [True],
    "unit_length": [True],
    "norm": ["batch", "none"],
    "prefer_available": [1.0, 3.0],
}

# What helped by itself, together.
COMBINED: dict[str, dict[str, Any]] = {
    "prefer 3, head": {"prefer_available": 3.0, "head": True},
    "prefer 3, rate 0.03, head": {"prefer_available": 3.0, "rate": 0.03, "head": True},
    "prefer 3, rate 0.1, head": {"prefer_available": 3.0, "rate": 0.1, "head": True},
}


class Noise(nn.Module):
    """Gaussian noise on the inputs while training."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x + self.size * torch.randn_like(x) if self.training else x


def network(setting: Setting) -> nn.Sequential:
    made = mlp(
        784,
        (2000, 2000),
        10,
        norm=setting.norm,
        affine=setting.affine,
        unit_length=setting.unit_length,
    )
    layers: list[nn.Module] = []
    for module in made:
        layers.append(module)
        if isinstance(module, nn.ReLU) and setting.hidden_dropout:
            layers.append(nn.Dropout(setting.hidden_dropout))
        if isinstance(module, nn.Flatten):
            layers += [nn.Dropout(setting.input_dropout)] * bool(setting.input_dropout)
            layers += [Noise(setting.noise)] * bool(setting.noise)
    return nn.Sequential(*layers)


def factor(setting: Setting, step: int) -> float:
    if step < setting.warm_up:
        return (step + 1) / setting.warm_up
    left = 1 - (step - setting.warm_up) / (setting.steps - setting.warm_up)
    return {"cosine": 0.5 - 0.5 * math.cos(math.pi * left), "linear": left, "constant": 1.0}[
        setting.schedule
    ]


def measured(stream: str, setting: Setting, tasks: int) -> dict[str, float]:
    torch.manual_seed(0)
    made = open_stream(stream, tasks=tasks, seed=0, data="mnist")
    model = network(setting)
    first = next(name for name, module in model.named_modules() if isinstance(module, nn.ReLU))
    density = (
        setting.density
        if setting.first_density is None
        else {first: setting.first_density, "*": setting.density}
    )
    method = GateON(
        per=setting.per,
        rate=setting.rate,
        epsilon=setting.epsilon,
        floor=setting.floor,
        relevance=setting.relevance if setting.per == "unit" else "gradient",
        apply=setting.apply,
        obstruct_head=setting.head,
        density=density,
        width=setting.width,
        power=setting.power,
        prefer=setting.prefer_available,
    )
    learner = Learner(
        model,
        optimizer=partial(torch.optim.Adam, lr=setting.lr),
        method=method,
        schedule=lambda optimizer: LambdaLR(optimizer, partial(factor, setting)),
        loss=partial(F.cross_entropy, label_smoothing=setting.label_smoothing),
    )
    record = run(made, learner, steps=setting.steps, batch=setting.batch, part="validation")
    frozen = record.availability[-1].values()
    return {
        "continual": record.summary["continual_accuracy"],
        "immediate": record.summary["immediate_accuracy"],
        "final": record.summary["final_accuracy"],
        "forgetting": record.summary["forgetting_rate"],
        "last": record.accuracy[-1][-1] or 0.0,
        "frozen": max((site["frozen"] for site in frozen), default=0.0),
        "seconds": sum(s["train"] for s in record.seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stream", choices=("permuted-mnist", "rotated-mnist", "shuffled-mnist"))
    parser.add_argument("view", choices=("per-unit", "per-parameter"))
    parser.add_argument(
        "--only", help="vary these only, separated by commas; combined: several at once"
    )
    parser.add_argument("--tasks", type=int, default=5)
    options = parser.parse_args()
    unit = options.view == "per-unit"
    base = Setting("unit", 0.5) if unit else Setting("parameter", 0.0)
    name = f"search/{options.stream.split('-')[0]}-{options.view}"
    path = Path(__file__).parent.parent / "results" / name / "record.json"
    rows = json.loads(path.read_text())["result"] if path.exists() else []
    wanted = {"base": base}
    for field, values in VARIED.items():
        if options.only is None or field in options.only.split(","):
            wanted |= {
                f"{field} {value}": replace(base, **{field: value})
                for value in values
                if value != getattr(base, field)
            }
    if options.only is None or "combined" in options.only.split(","):
        wanted |= {label: replace(base, **changes) for label, changes in COMBINED.items()}
    for label, setting in wanted.items():
        if any(row["label"] == label for row in rows) or (
            label.startswith("relevance") and not unit
        ):
            continue
        rows.append({"label": label} | measured(options.stream, setting, options.tasks))
        print(
            {
                key: round(value, 4) if isinstance(value, float) else value
                for key, value in rows[-1].items()
            },
            flush=True,
        )
        settings = {
            "tasks": options.tasks,
            "steps": base.steps,
            "batch": base.batch,
            "hidden": [2000, 2000],
            "part": "validation",
            "seed": 0,
        }
        command = (
            f"python benchmarks/search.py {options.stream} {options.view} --tasks {options.tasks}"
        )
        measure.write(name, settings | {"base": vars(base)}, rows, command)


if __name__ == "__main__":
    main()
