"""The records of the benchmarks as figures in docs/.

python benchmarks/figures.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateon.report.colours import METHODS, shades
from gateon.report.figures import Panel, bars, lines
from tables import RESULTS, load

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    steps = load("cost/compact-step")["784-2000-2000-10, batch 1000"]
    rows = {name: (row["ratio"], row["low"], row["high"]) for name, row in steps.items()}
    method = {"per unit": "n-gateon", "per parameter": "p-gateon", "plain": "finetune"}
    colour = {name: METHODS[method[name.rpartition(", ")[2]]] for name in rows}
    bars(rows, "time of a step, plain network = 1", DOCS / "performance", colour=colour)
    lines(density(load("cost/density")), DOCS / "density")
    plasticity(json.loads((RESULTS / "demo/plasticity/record.json").read_text()))


def density(rows: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Accuracy, forgetting and time against density."""
    found = []
    for what, name, factor in (
        ("continual accuracy (%)", "continual_accuracy", 100),
        ("forgetting (points)", "forgetting_rate", 100),
        ("time of plain", "of_plain", 1),
    ):
        curves: dict[str, list[tuple[float, ...]]] = {}
        for row in sorted(rows, key=lambda row: row["method"]):
            if row["density"] is not None:
                label = f"{row['method']}, {row['stream'].removesuffix('-mnist')}"
                curves.setdefault(label, []).append((row["density"], factor * row[name]))
        found.append(Panel("", curves, "density", what, log=True))
    return found


def plasticity(record: Mapping[str, Any]) -> None:
    """Plasticity of neurons against the rate at which they were driven, and against silence."""
    asked, found = record["settings"], record["result"]
    driven, silences, after = asked["driven"], asked["silences"], found["plasticity"]
    steps, eta, epsilon = asked["seconds"] / asked["step"], asked["rate"], asked["epsilon"]
    law = [min(1.0, (1 - eta * (mu - epsilon)) ** steps) for mu in found["relevance"]]
    rates = {
        f"{rate:.0f} Hz": [
            (silence, one["mean"][n], one["spread"][n])
            for silence, one in zip(silences, after, strict=True)
        ]
        for n, rate in enumerate(driven)
        if found["recovery"][n] is not None
    }
    recovered = [seconds for seconds in found["recovery"] if seconds is not None]
    what = "plasticity, naive = 1"
    panels = [
        Panel(
            f"right after {asked['seconds']:.0f} s at a rate",
            {
                "measured": list(zip(driven, after[0]["mean"], after[0]["spread"], strict=True)),
                "eq. availabilty": list(zip(driven, law, strict=True)),
            },
            "firing rate (Hz)",
            what,
        ),
        Panel(
            "after silence; dotted: T*",
            rates,
            "silence (s)",
            what,
            marks=dict(zip(rates, recovered, strict=True)),
        ),
    ]
    colour = {"measured": "#222222", "eq. availabilty": "#a06a00"}
    colour |= dict(zip(rates, shades("#3a86a8", len(rates)), strict=True))
    lines(panels, DOCS / "plasticity", colour=colour)


if __name__ == "__main__":
    main()
