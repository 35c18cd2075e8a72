"""Settings of every method compared: seven trials each, on validation data of the first three tasks of two streams.

    python benchmarks/search_methods.py [--methods ewc,si] [--streams permuted-mnist]

Network, steps and batch are those of `gateon reproduce comparison --scale cpu`. Trials that are in
the record already are not run again. What was best stands in reproduce/tables/comparison.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import measure
from gateon.runs.run import run
from gateon.runs.specification import Specification
from gateon.streams import Stream

Trial = Mapping[str, Any]
ROOT = Path(__file__).parent.parent
STREAMS = ("permuted-mnist", "split-mnist")
COMPARED = {"data": "mnist", "tasks": 10, "hidden": (400, 400), "steps": 100, "batch": 128}
OGD: Trial = {"memory": 20, "optimizer": "plain"}


def _grid(*trials: tuple[float, ...], names: tuple[str, ...]) -> list[Trial]:
    return [dict(zip(names, values, strict=True)) for values in trials]


def _penalty(*trials: tuple[float, float, str]) -> list[Trial]:
    return [{"strength": strength, "lr": lr, "norm": norm} for strength, lr, norm in trials]


def _plain(*trials: tuple[float, str]) -> list[Trial]:
    return [{"lr": lr, "norm": norm} for lr, norm in trials]


EWC = _penalty(
    *(
        (30.0, 2e-3, "context"),
        (100.0, 2e-3, "context"),
        (300.0, 2e-3, "context"),
        (100.0, 5e-3, "context"),
        (100.0, 3e-3, "none"),
    ),
    *((200.0, 5e-3, "context"), (1000.0, 2e-3, "context")),
)
SI = _penalty(
    *(
        (10.0, 2e-3, "none"),
        (100.0, 2e-3, "none"),
        (30.0, 2e-3, "context"),
        (100.0, 2e-3, "context"),
        (300.0, 2e-3, "context"),
    ),
    *((100.0, 5e-3, "context"), (1000.0, 2e-3, "context")),
)
GATEON = ("lr", "rate", "density")
MASKS: list[Trial] = [
    {"lr": 5e-3},
    {"lr": 1e-2},
    {"lr": 0.3, "optimizer": "plain"},
    {"lr": 1.0, "optimizer": "plain"},
    {"lr": 0.3, "optimizer": "plain", "strength": 0.1},
    {"lr": 2.0, "optimizer": "plain"},
    {"lr": 1.0, "optimizer": "plain", "strength": 0.1},
]
PLAIN = _plain(
    *(
        (1e-3, "none"),
        (3e-3, "none"),
        (2e-3, "context"),
        (5e-3, "context"),
        (1e-2, "context"),
        (1e-3, "context"),
        (3e-3, "context"),
    )
)
TOGETHER = _plain(
    *(
        (1e-3, "none"),
        (2e-3, "none"),
        (4e-3, "none"),
        (8e-3, "none"),
        (5e-3, "context"),
        (1.6e-2, "none"),
        (2e-3, "context"),
    )
)

TRIALS: dict[str, list[Trial]] = {
    "n-gateon": _grid(
        *(
            (5e-3, 0.01, 0.25),
            (1e-2, 0.01, 0.25),
            (1e-2, 0.01, 0.4),
            (2e-2, 0.01, 0.4),
            (1e-2, 0.03, 0.4),
        ),
        *((4e-2, 0.01, 0.4), (8e-2, 0.01, 0.4)),
        names=GATEON,
    ),
    "p-gateon": _grid(
        *(
            (5e-3, 0.03, 0.25),
            (1e-2, 0.03, 0.25),
            (1e-2, 0.03, 0.4),
            (2e-2, 0.03, 0.4),
            (1e-2, 0.1, 0.4),
        ),
        *((4e-2, 0.03, 0.4), (8e-2, 0.03, 0.4)),
        names=GATEON,
    ),
    "ewc": EWC,
    "ewc-online": EWC,
    "si": SI,
    "xdg": [
        {"lr": 5e-3},
        {"lr": 1e-2},
        {"lr": 5e-3, "settings": "off=0.6"},
        {"lr": 1e-2, "settings": "off=0.6"},
        {"lr": 3e-3, "norm": "none", "settings": "off=0.6"},
        {"lr": 5e-3, "settings": "off=0.7"},
        {"lr": 2e-2},
    ],
    "xdg+si": [
        {"lr": 5e-3, "strength": 10.0},
        {"lr": 5e-3, "strength": 100.0},
        {"lr": 5e-3, "strength": 100.0, "settings": "off=0.6"},
        {"lr": 5e-3, "strength": 1000.0, "settings": "off=0.6"},
        {"lr": 1e-2, "strength": 100.0},
        {"lr": 1e-2, "strength": 100.0, "settings": "off=0.6"},
        {"lr": 1e-2, "strength": 1000.0, "settings": "off=0.6"},
    ],
    "rmn": [
        {"lr": 5e-3},
        {"lr": 1e-2},
        {"lr": 5e-3, "settings": "high=0.8"},
        {"lr": 1e-2, "settings": "high=0.8"},
        {"lr": 2e-2, "settings": "high=0.8"},
        {"lr": 4e-2, "settings": "high=0.8"},
        {"lr": 2e-2},
    ],
    "dendrites": [
        {"lr": 1e-3, "norm": "none"},
        {"lr": 1e-3, "norm": "none", "settings": "on=0.25"},
        {"lr": 3e-3, "norm": "none", "settings": "on=0.25"},
        {"lr": 3e-3, "norm": "none", "settings": "on=0.5"},
        {"lr": 3e-3, "norm": "none", "settings": "on=0.25,sparsity=0"},
        {"lr": 5e-3, "norm": "none", "settings": "on=0.25"},
        {"lr": 3e-4, "norm": "none"},
    ],
    "dendrites+si": [
        {"lr": 1e-3, "norm": "none", "strength": 10.0},
        {"lr": 1e-3, "norm": "none", "strength": 100.0, "settings": "on=0.25"},
        {"lr": 3e-3, "norm": "none", "strength": 10.0, "settings": "on=0.25"},
        {"lr": 3e-3, "norm": "none", "strength": 100.0, "settings": "on=0.25"},
        {"lr": 3e-3, "norm": "none", "strength": 1000.0, "settings": "on=0.25"},
        {"lr": 5e-3, "norm": "none", "strength": 10.0, "settings": "on=0.25"},
        {"lr": 3e-3, "norm": "none", "strength": 10000.0, "settings": "on=0.25"},
    ],
    "ogd": [
        OGD | trial
        for trial in _plain(
            *(
                (0.1, "none"),
                (0.3, "none"),
                (0.1, "context"),
                (0.3, "context"),
                (1.0, "context"),
                (0.2, "context"),
                (3.0, "context"),
            )
        )
    ],
    "hat": MASKS,
    "adahat": MASKS,
    "lwf": _penalty(
        *(
            (1.0, 1e-3, "none"),
            (1.0, 3e-3, "none"),
            (3.0, 1e-3, "none"),
            (3.0, 3e-3, "none"),
            (10.0, 3e-3, "none"),
        ),
        *((3.0, 6e-3, "none"), (5.0, 1e-3, "none")),
    ),
    "zoo": PLAIN,
    "replay": TOGETHER,
    "joint": TOGETHER,
    "finetune": PLAIN,
    "isolated": PLAIN,
}


def words(trial: Trial) -> str:
    return ", ".join(f"{name} {value}" for name, value in trial.items())


def measured(specification: Specification, stream: Stream) -> dict[str, float | None]:
    learner = specification.make_learner(stream)
    try:
        record = run(
            stream,
            learner,
            steps=specification.training.steps,
            batch=specification.training.batch,
            part="validation",
        )
    except FloatingPointError:  # a trial too: of settings that do not work
        return {"continual": None}
    summary = record.summary
    names = {
        "continual": "continual_accuracy",
        "final": "final_accuracy",
        "immediate": "immediate_accuracy",
    }
    return {short: summary[name] for short, name in names.items()} | {
        "forgetting": summary["forgetting_rate"]
    }


def choose(rows: list[dict[str, Any]]) -> dict[str, dict[str, Trial]]:
    """The trial with the highest continual accuracy, of every method on every stream; marks it in the rows."""
    chosen: dict[str, dict[str, Trial]] = {}
    for method, trials in TRIALS.items():
        for stream in STREAMS:
            here = [
                row
                for row in rows
                if (row["method"], row["stream"]) == (method, stream)
                and row["continual"] is not None
            ]
            best = max(here, key=lambda row: row["continual"], default=None)
            for row in here:
                row["chosen"] = "yes" if row is best else ""
            if best is not None:
                chosen.setdefault(method, {})[stream] = next(
                    t for t in trials if words(t) == best["settings"]
                )
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", default=",".join(TRIALS))
    parser.add_argument("--streams", default=",".join(STREAMS))
    options = parser.parse_args()
    path = ROOT / "results" / "search" / "methods" / "record.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["result"] if path.exists() else []
    rows = [row for row in rows if row["settings"] in map(words, TRIALS.get(row["method"], []))]
    made: dict[str, Stream] = {}
    for name in options.streams.split(","):
        for method in options.methods.split(","):
            for trial in TRIALS[method]:
                place = {"method": method, "stream": name, "settings": words(trial)}
                if any(place.items() <= row.items() for row in rows):
                    continue
                fields = {**COMPARED, "stream": name, "method": method, "tasks": 3, **trial}
                asked = Specification.from_options(
                    {key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()}
                )
                stream = made.setdefault(name, asked.make_stream())
                rows.append(place | measured(asked, stream))
                print(
                    {
                        key: round(v, 4) if isinstance(v, float) else v
                        for key, v in rows[-1].items()
                    },
                    flush=True,
                )
                choose(rows)
                settings = {
                    **COMPARED,
                    "tasks": 3,
                    "part": "validation",
                    "seed": 0,
                    "trials of each method and stream": 7,
                }
                measure.write(
                    "search/methods", settings, rows, "python benchmarks/search_methods.py"
                )


if __name__ == "__main__":
    main()
