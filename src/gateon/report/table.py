"""Tables of several runs: mean and spread over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..runs.record import Record
from ..runs.summaries import COLUMNS, percent, summarise
from ..storage.checkpoint import whole_file
from ..storage.files import printable

__all__ = ["COLUMNS", "markdown", "percent", "summarise", "write_comparison"]


def markdown(table: Mapping[str, Mapping[str, tuple[float, float]]], seeds: int) -> str:
    """A summary in percent, as a Markdown table.

    Args:
        table: What `summarise` returned.
        seeds: The number of seeds.

    >>> table = {"finetune": {"continual_accuracy": (0.5, 0.01), "seconds": (3.0, 0.0)}}
    >>> print(markdown(table, seeds=2))
    | method | continual | seconds |
    |---|---|---|
    | finetune | 50.00 ± 1.00 | 3 |
    <BLANKLINE>
    Percent, mean ± standard deviation of 2 seeds; seconds to train.
    """
    names = [name for name in COLUMNS if any(name in row for row in table.values())]
    lines = ["| method | " + " | ".join([COLUMNS[name] for name in names] + ["seconds"]) + " |"]
    lines.append("|---" * (len(names) + 2) + "|")
    for method, row in table.items():
        title, seconds = printable(method).replace("|", "\\|"), f"{row['seconds'][0]:.0f}"
        cells = [title, *(percent(row.get(name), seeds) for name in names), seconds]
        lines.append("| " + " | ".join(cells) + " |")
    spread = f"mean ± standard deviation of {seeds} seeds" if seeds > 1 else "one seed"
    return "\n".join([*lines, "", f"Percent, {spread}; seconds to train."])


def write_comparison(
    records: Mapping[str, Sequence[Record]], asked: Mapping[str, Any], out: Path
) -> None:
    """Write the table of a comparison as compare.md and compare.json.

    Args:
        records: By method, one record per seed.
        asked: The specification, as plain values.
        out: The directory.
    """
    table, seeds = summarise(records), max(len(runs) for runs in records.values())
    named = {
        method: {name: {"mean": m, "spread": s} for name, (m, s) in row.items()}
        for method, row in table.items()
    }
    content = {"specification": asked, "seeds": seeds, "methods": named}
    texts = {
        "compare.md": markdown(table, seeds),
        "compare.json": json.dumps(content, indent=1),
    }
    for name, text in texts.items():
        with whole_file(out / name) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
