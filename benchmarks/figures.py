"""The records of the benchmarks as figures in docs/.

python benchmarks/figures.py
"""

from __future__ import annotations

from pathlib import Path

from gateon.report.figures import bars, lines
from tables import load

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    steps = load("cost/compact-step")["784-2000-2000-10, batch 1000"]
    rows = {name: (row["ratio"], row["low"], row["high"]) for name, row in steps.items()}
    bars(rows, "time of a step, plain network = 1", DOCS / "performance")
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {
        "continual accuracy (%)": {},
        "forgetting (points)": {},
        "time of plain": {},
    }
    for row in load("cost/density"):
        if row["density"] is not None:
            name = f"{row['method']}, {row['stream'].removesuffix('-mnist')}"
            for title, value in zip(
                curves,
                (100 * row["continual_accuracy"], 100 * row["forgetting_rate"], row["of_plain"]),
                strict=True,
            ):
                curves[title].setdefault(name, []).append((row["density"], value))
    lines(curves, "density", DOCS / "density")


if __name__ == "__main__":
    main()
