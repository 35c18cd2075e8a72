"""What a page says of reproduced tables: the paper's numbers, ours, their spread, the claims."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..report.colours import PALETTE
from ..reproduce import choose, load, names, read
from ..reproduce.measures import MEASURES
from ..reproduce.show import OLD_NOTE, has_old
from .words import Facts, Mood, count, finding

__all__ = ["facts_of_tables"]

LOWER_IS_BETTER = ("forgetting", "seconds", "bytes", "missed", "false_alarms", "delay")
LARGEST_FIGURE = 1 << 20
VERDICTS = {True: "holds", False: "does not hold", None: "not measured"}


def facts_of_tables(paths: Sequence[Path]) -> Facts:
    """Everything a page shows of tables and figures.

    Args:
        paths: of their records.
    """
    tables = [_table(path) for path in paths]
    first = tables[0]
    several = len(tables) > 1
    return {
        "kind": "tables",
        "title": "Reproduced tables" if several else first["title"],
        "about": f"{len(tables)} tables and figures, beside the numbers they reproduce."
        if several
        else first["about"],
        "palette": PALETTE,
        "findings": [],
        "tables": tables,
    }


def _table(path: Path) -> Facts:
    content = read(path)
    try:
        facts = _facts(content)
    except (KeyError, TypeError, AttributeError, ValueError) as reason:
        raise ValueError(
            f"{path} is no record of gateon reproduce, or a damaged one: move it away."
        ) from reason
    return facts | {"figure": _figure(path.parent / "figure.svg")}


def _facts(content: Mapping[str, Any]) -> Facts:
    claims = _claims(content)
    entries = [_entry(entry) for entry in content["entries"]]
    printed, paper = content.get("printed", "the paper"), _paper(content)
    shown = [name for name in content["measures"] if name in MEASURES]
    return {
        "name": content["name"],
        "title": content["title"],
        "about": f"Scale {content['scale']}, {count(len(entries), 'place')} measured, beside the "
        f"numbers of {printed}.",
        "scale": content["scale"],
        "rows": list(content["rows"]),
        "columns": list(content["columns"]),
        "streams": list(content["streams"]),
        "printed": printed,
        "paper": paper,
        "measures": [_measure(name) for name in shown],
        "entries": entries,
        "claims": claims,
        "failed": [
            f"{e['row']}, {e['column']}, {e['stream']}: {e['failed']}"
            for e in entries
            if e["failed"]
        ],
        "differences": list(content["differences"]),
        "note": OLD_NOTE.removeprefix("* ") if has_old(content) else None,
        "command": content.get("command"),
        "environment": content.get("environment", {}),
        "findings": _findings(content, entries, claims, shown, paper, printed),
    }


def _measure(name: str) -> Facts:
    title, factor = MEASURES[name]
    best = "min" if any(word in name for word in LOWER_IS_BETTER) else "max"
    return {"name": name, "title": title, "factor": factor, "best": best}


def _entry(entry: Mapping[str, Any]) -> Facts:
    return {
        "row": entry["row"],
        "column": entry["column"],
        "stream": entry["stream"],
        "seeds": entry["seeds"],
        "failed": entry.get("failed"),
        "commits": list(
            dict.fromkeys(str(made.get("commit"))[:12] for made in entry.get("made", []))
        ),
        "measures": {
            name: {"mean": found["mean"], "spread": found["spread"], "each": found.get("each", [])}
            for name, found in entry.get("measures", {}).items()
            if name in MEASURES
        },
    }


def _paper(content: Mapping[str, Any]) -> Facts:
    """The printed numbers, by row, stream and measure; all in percent."""
    return {
        row: {stream: dict(numbers) for stream, numbers in found.items()}
        for row, found in content["paper"].items()
        if found
    }


def _claims(content: Mapping[str, Any]) -> list[Facts]:
    """The sentences of the paper, and targets, that this record decides."""
    name = content["name"]
    if name not in names():
        return []
    table = load(choose("table", [name], names())[0])
    found = []
    for kind, claims in (("claim", table.claims), ("target", table.targets)):
        for claim in claims:
            decided = claim.check(content)
            found.append(
                {
                    "kind": kind,
                    "says": claim.says,
                    "paper": claim.paper,
                    "wanted": claim.wanted,
                    "ours": decided.figure,
                    "verdict": VERDICTS[decided.holds],
                    "because": claim.because if decided.holds is False else "",
                }
            )
    return found


def _findings(
    content: Mapping[str, Any],
    entries: Sequence[Facts],
    claims: Sequence[Facts],
    shown: Sequence[str],
    paper: Facts,
    printed: str,
) -> list[Facts]:
    found = []
    decided = [claim for claim in claims if claim["verdict"] != VERDICTS[None]]
    if decided:
        held = sum(claim["verdict"] == VERDICTS[True] for claim in decided)
        mood: Mood = "good" if held == len(decided) else "warn"
        says = "claims and targets that this table decides hold; each is below, with its figure."
        found.append(finding(f"{held} of {len(decided)}", says, "claims", mood))
    percents = [name for name in shown if MEASURES[name][1] == 100]
    beside = _beside(entries, paper, percents[:1])
    if beside:
        ahead = sum(difference >= 0 for difference, _ in beside)
        title = MEASURES[percents[0]][0]
        says = f"places where the {title} is that of {printed} or better, by its printed numbers."
        found.append(finding(f"{ahead} of {len(beside)}", says, "table"))
        most, where = beside[-1], beside[0]
        for name, (difference, entry) in (("above", most), ("below", where)):
            if (difference > 0) == (name == "above") and difference:
                place = f"{entry['row']} on {entry['stream']} ({entry['column']})"
                head = f"{'+' if difference > 0 else '−'}{abs(difference):.1f} points"
                found.append(finding(head, f"furthest {name} {printed}: {place}.", "table"))
    seeds = {len(entry["seeds"]) for entry in entries if entry["seeds"]}
    if seeds:
        spread = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else str(max(seeds))
        noun = "seed" if max(seeds) == 1 else "seeds"
        says = f"a place, at scale {content['scale']}. {count(len(content['differences']), 'difference')} "
        found.append(finding(f"{spread} {noun}", f"{says}from the original, listed below.", "made"))
    return found


def _beside(
    entries: Sequence[Facts], paper: Facts, measures: Sequence[str]
) -> list[tuple[float, Facts]]:
    """Ours minus the printed number, of the best column of each row and stream."""
    found: dict[tuple[str, str], tuple[float, Facts]] = {}
    for measure in measures:
        for entry in entries:
            wanted = paper.get(entry["row"], {}).get(entry["stream"], {}).get(measure)
            ours = entry["measures"].get(measure)
            if wanted is not None and ours is not None:
                place = (entry["row"], entry["stream"])
                difference = round(MEASURES[measure][1] * ours["mean"] - wanted, 4)
                if place not in found or difference > found[place][0]:
                    found[place] = (difference, entry)
    return sorted(found.values(), key=lambda one: one[0])


def _figure(path: Path) -> str | None:
    """The figure beside a record, as an address that holds it."""
    if not path.is_file() or path.stat().st_size > LARGEST_FIGURE:
        return None
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
