"""Plasticity of neurons that were driven, over five seeds: the record behind docs/neuroscience.md.

python benchmarks/neurons.py
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import measure
import plasticity

SEEDS = 5


def over_seeds(each: list[list[float]]) -> dict[str, list[float]]:
    """Mean and standard deviation of every neuron."""
    columns = list(zip(*each, strict=True))
    return {
        "mean": [round(statistics.fmean(column), 5) for column in columns],
        "spread": [round(statistics.stdev(column), 5) for column in columns],
    }


def measured(epsilon: float) -> list[dict[str, list[float]]]:
    """Plasticity after every silence."""
    found = [plasticity.experiment(seed, epsilon)["plasticity"] for seed in range(SEEDS)]
    return [over_seeds([one[n] for one in found]) for n in range(len(plasticity.SILENCES))]


def main() -> None:
    result: dict[str, Any] = {
        "plasticity": measured(plasticity.EPSILON),
        "relevance": plasticity.relevances(),
        "recovery": plasticity.recoveries(),
    }
    settings = {
        "driven": plasticity.DRIVEN,
        "seconds": plasticity.DRIVE,
        "silences": plasticity.SILENCES,
        "neurons": plasticity.NEURONS,
        "usual": plasticity.USUAL,
        "step": plasticity.STEP,
        "rate": plasticity.ETA,
        "epsilon": plasticity.EPSILON,
        "seeds": SEEDS,
    }
    measure.write("demo/plasticity", settings, result, "python benchmarks/neurons.py")


if __name__ == "__main__":
    main()
