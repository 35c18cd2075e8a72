"""What a search leaves: a record of all trials, and a page with a table of the best."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..runs.environment import environment
from ..runs.identity import NUMERICS
from ..storage.checkpoint import whole_file
from ..storage.files import printable
from .asked import Search
from .ranges import edges

__all__ = ["about_best", "content_of", "rows_of", "write"]

SHOWN = 10  # trials in a table
ENDS = {"pruned": "ended early", "fail": "failed", "running": "not finished"}


def content_of(search: Search, trials: Sequence[Mapping[str, Any]], command: str) -> dict[str, Any]:
    """The record of a search.

    Args:
        search: what was searched.
        trials: as `Trials.found` gives them.
        command: what runs it again.
    """
    best = trials[0] if trials and trials[0]["value"] is not None else None
    found: dict[str, Any] = {"trial": None, "value": None, "settings": {}, "edges": {}, "run": None}
    if best is not None:
        run = search.specification(best["settings"]).with_options({"measuring.part": "test"})
        found = {
            "trial": best["number"],
            "value": best["value"],
            "settings": best["settings"],
            "edges": edges(search.over, best["settings"]),
            "run": run.command(),
        }
    return {
        "name": f"search {search.base.stream.name}",
        "command": command,
        "aim": search.aim,
        "part": "validation",
        "best": found,
        "over": {name: _words(one) for name, one in search.over.items()},
        "sampler": search.sampler,
        "prune": search.prune,
        "specification": search.base.to_dict(),
        "trials": list(trials),
        "numerics": NUMERICS,
        "environment": environment(),
    }


def rows_of(content: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The titles and cells of a table of the best trials.

    >>> one = {"number": 3, "state": "complete", "value": 0.9, "settings": {"training.lr": 0.012345}}
    >>> content = {"aim": "final_accuracy", "over": {"training.lr": "0..1"}, "trials": [one]}
    >>> rows_of(content)
    (['trial', 'final accuracy', 'training.lr'], [['3', '90.00', '0.01235']])
    """
    names = list(content["over"])
    cells = []
    for trial in content["trials"][:SHOWN]:
        value = trial["value"]
        shown = ENDS.get(trial["state"], trial["state"]) if value is None else f"{100 * value:.2f}"
        settings = [_short(trial["settings"].get(name, "-")) for name in names]
        cells.append([str(trial["number"]), shown, *settings])
    return ["trial", content["aim"].replace("_", " "), *names], cells


def about_best(content: Mapping[str, Any]) -> list[str]:
    """Remarks on the best settings, one sentence each."""
    best = content["best"]
    if best["trial"] is None:
        return ["No trial was finished."]
    told = [f"best: {best['run']}"]
    for name, end in best["edges"].items():
        told.append(
            f"{name} is at the {'lower' if end == 'low' else 'upper'} end of {content['over'][name]}: "
            "the best may lie beyond."
        )
    return told


def write(content: Mapping[str, Any], out: Path) -> Path:
    """Write search.json and search.md; return the path of the first.

    Args:
        content: as `content_of` makes it.
        out: the directory.
    """
    titles, cells = rows_of(content)
    rows = [[printable(cell).replace("|", "\\|") for cell in row] for row in [titles, *cells]]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|---" * len(titles) + "|")
    count = len(content["trials"])
    ended = sum(trial["state"] == "pruned" for trial in content["trials"])
    lines += [
        "",
        f"Percent, on validation data; the best of {count} trials, {ended} of which were ended early.",
        "",
        *(f"{printable(line)}  " for line in about_best(content)),
        f"command: `{printable(content['command'])}`",
    ]
    texts = {"search.json": json.dumps(content, indent=1), "search.md": "\n".join(lines)}
    for name, text in texts.items():
        with whole_file(out / name) as aside:
            aside.write_text(text + "\n", encoding="utf-8")
    return out / "search.json"


def _words(one: Any) -> str:
    if hasattr(one, "words"):
        return "|".join(one.words)
    return f"{one.low:g}..{one.high:g}" + (":log" if one.log else "")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
