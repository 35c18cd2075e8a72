"""Readings of a greenhouse: seasons change what is normal, one returns, and nobody announces any of it.

    python examples/sensors.py

Half a minute on a laptop.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import gateon

# Season -> usual temperature, humidity and hours of light; a fault is told by other signs in each.
SEASONS = {"spring": (14.0, 60.0, 12.0), "summer": (27.0, 40.0, 16.0), "winter": (4.0, 80.0, 8.0)}
FAULTS = {"spring": "humidity", "summer": "temperature", "winter": "light"}
COLUMNS = ("temperature", "humidity", "light")


def readings(season: str, count: int, seed: int) -> dict[str, list[Any]]:
    """Readings, one column each, and whether the heating was all right; a sensor fails at times."""
    chance = random.Random(f"{season} {seed}")
    table: dict[str, list[Any]] = {name: [] for name in (*COLUMNS, "window", "state")}
    for _ in range(count):
        fault = chance.random() < 0.5
        for name, usual in zip(COLUMNS, SEASONS[season], strict=True):
            shift = 0.25 * usual if fault and name == FAULTS[season] else 0.0
            value = chance.gauss(usual + shift, 0.07 * usual)
            table[name].append(None if chance.random() < 0.02 else round(value, 2))
        table["window"].append(chance.choice(("open", "shut")))
        table["state"].append("fault" if fault else "fine")
    return table


def main() -> None:
    """Learn seasons as they come, without a word about which one it is."""
    place = Path(tempfile.mkdtemp()) / "greenhouse"
    model = gateon.LivingModel()
    for number, season in enumerate(("spring", "summer", "winter", "spring")):
        lesson = model.learn(readings(season, 400, seed=number), label="state")[0]
        model.save(place)
        began = "a new task" if lesson.new else "goes on"
        print(f"{season}: {lesson.task}, {began}; right on held-out readings {lesson.accuracy:.0%}")
    for season in SEASONS:
        table = readings(season, 300, seed=9)
        truth = table.pop("state")
        labels = model.predict(table).labels
        found = sum(a == b for a, b in zip(labels, truth, strict=True)) / len(truth)
        print(f"new readings of {season}: {found:.0%} right")


if __name__ == "__main__":
    main()
