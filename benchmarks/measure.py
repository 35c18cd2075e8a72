"""Interleaved timing: every variant once, then again, so that whatever else the machine does falls on all of them alike."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gateon.runs.environment import environment
from gateon.runs.identity import NUMERICS, check_clean

# Every benchmark takes --allow-dirty. It is asked for before anything is measured, so that nothing
# is lost.
ALLOW_DIRTY = "--allow-dirty" in sys.argv
if ALLOW_DIRTY:
    sys.argv.remove("--allow-dirty")
if Path(sys.argv[0]).parent.resolve() == Path(__file__).parent and not {"--dry", "-h", "--help"} & {
    *sys.argv
}:
    try:
        check_clean(ALLOW_DIRTY)
    except ValueError as reason:
        sys.exit(str(reason))


def interleaved(
    variants: Mapping[str, Callable[[], None]], rounds: int, warm_up: int = 3
) -> dict[str, list[float]]:
    """Seconds of every variant in every round."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for round_ in range(warm_up + rounds):
        for name, run in variants.items():
            start = time.perf_counter()
            run()
            if round_ >= warm_up:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratios(seconds: Mapping[str, list[float]], base: str) -> dict[str, dict[str, float]]:
    """Of every variant to the base in the same round: median and quartiles; and the median time in milliseconds."""
    table = {}
    for name, values in seconds.items():
        each = [a / b for a, b in zip(values, seconds[base], strict=True)]
        low, middle, high = statistics.quantiles(each, n=4) if len(each) > 1 else each * 3
        table[name] = {
            "ratio": middle,
            "low": low,
            "high": high,
            "milliseconds": 1e3 * statistics.median(values),
        }
    return table


def show(table: Mapping[str, Mapping[str, float]]) -> None:
    print(f"{'':44} {'ratio':>7}  {'quartiles':>15}  {'ms':>8}")
    for name, row in table.items():
        print(
            f"{name:44} {row['ratio']:7.3f}  {row['low']:7.3f}-{row['high']:7.3f}  {row['milliseconds']:8.2f}"
        )


def write(name: str, settings: Mapping[str, Any], result: Any, command: str) -> None:
    """Write results/NAME/record.json.

    Args:
        name: with its group of results, such as cost/compact-step.
        settings: what was measured.
        result: what was found.
        command: that makes the record again.
    """
    path = Path(__file__).parent.parent / "results" / name / "record.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "name": name,
        "command": command,
        "settings": settings,
        "numerics": NUMERICS,
        "environment": environment(),
        "result": result,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
