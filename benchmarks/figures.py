"""The records of the benchmarks as figures in docs/.

python benchmarks/figures.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateon.report.colours import METHODS
from gateon.report.figures import Panel, bars, lines
from tables import load

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    steps = load("cost/compact-step")["784-2000-2000-10, batch 1000"]
    rows = {name: (row["ratio"], row["low"], row["high"]) for name, row in steps.items()}
    method = {"per unit": "n-gateon", "per parameter": "p-gateon", "plain": "finetune"}
    colour = {name: METHODS[method[name.rpartition(", ")[2]]] for name in rows}
    bars(rows, "time of a step, plain network = 1", DOCS / "performance", colour=colour)
    lines(density(load("cost/density")), DOCS / "density")


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


if __name__ == "__main__":
    main()
