"""docs/results.md and the table of targets, made of the records in results/ and of nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runs.environment import environment
from ..storage.checkpoint import whole_file
from .claims import CLAIMS, TARGETS, Claim
from .findings import NOT_MEASURED, Found, found_in
from .job import SCALES
from .jobs import JOBS
from .show import table

__all__ = ["write_results_page", "write_targets"]

VERDICT = {True: "holds", False: "does not hold", None: "not measured"}
MET = {True: "met", False: "missed", None: "not measured"}


def write_targets(results: Path, scale: str) -> Path:
    """The targets and whether the records of the other jobs meet them: results/paper/targets-SCALE."""
    found = found_in(results, scale)
    folder = results / "paper" / f"targets-{scale}"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"# Targets at scale `{scale}`",
        "",
        *_targets(found),
        "",
        f"Made by `gateon reproduce targets --scale {scale}`.",
    ]
    rows = [_as_row(claim, found) for claim in TARGETS]
    record = {"name": "targets", "scale": scale, "result": rows, "environment": environment()}
    _write(folder / "record.json", json.dumps(record, indent=1))
    _write(folder / "table.md", "\n".join(lines))
    return folder


REASONS = """The preset `best` and the settings of other methods were chosen on validation data; the trials
of these searches are below. Where a job has settings of its own, they stand beside its table: they come from single trials on
validation data, which are not recorded.

For the preset settings were varied one at a time around a base, on validation data, one seed; differences of less than a tenth of a
point are noise.

- What decided: label smoothing; opening the gates of a new context on units with availability left (`prefer`) together with
  an obstructed head, which ends the forgetting that comes through the head; with both, a faster rate costs nothing and forgets
  less. Of the rates the middle one is taken, since a faster one freezes more than a hundred tasks may leave room for.
- What did not: a floor under availability, how wide gates start, the schedule of the learning rate (linear, cosine or constant),
  norms with the statistics of the batch at hand.
- What hurt: no label smoothing, sub-networks that are very sparse, and dense ones, which forget; no norm; dropout of inputs or
  hidden units, and noise on inputs, in so short a training; and availability applied at every step instead of from the next
  switch on, which costs a point.
- In a network that is small for its tasks, such as a narrow Wide ResNet, freezing per parameter helps: per unit little is left
  after a few tasks. How many tasks find room is a matter of width and sparsity: a task takes about the square of its density in
  parameters. So split CIFAR-100 is learned in sparse sub-networks of wide ones (cifar-wide). What decides there is how large
  weights start: drawn for the whole width, they are too small for a sub-network (`rescale`); and that a task starts as a copy
  of the one before it, on units of its own (`inherit`). That all tasks share the first groups (`shared`) adds little. In fully
  connected networks `rescale` changed next to nothing, and `inherit` made permuted and shuffled tasks a little worse and rotated
  ones no better, in single trials on validation data that are not recorded.
- In a small CNN p-GateON with a faster rate forgets next to nothing over three tasks, where n-GateON forgets. With gates that start
  nearly open and learn faster than weights p-GateON learns a little more; n-GateON does not.
- Not searched this way: all settings per unit but density."""


def write_results_page(results: Path, page: Path) -> Path:
    """Every table and figure there is, the claims of the paper, the targets, and the records of searches."""
    found = {scale: found_in(results, scale) for scale in reversed(SCALES)}  # the largest first
    if not any(found.values()):
        raise ValueError(
            f"There is no record of gateon reproduce in {results}: make one, such as gateon reproduce table-1."
        )
    parts = [
        "# Results",
        "This page is made of the records in `results/` by `gateon reproduce docs`; nothing on it is written by hand.",
        f"Scales: {'; '.join(f'`{name}`, {words}' for name, words in SCALES.items())}.",
        "## Which of the paper's claims hold",
        "Each by the records of the largest scale at which it was measured; what is small says little about what is large.",
        "\n".join(_claims(found)),
        "## Targets",
        "On two cores and full MNIST: scale `cpu`.",
        "\n".join(_targets(found["cpu"])),
    ]
    for name, job in JOBS.items():
        for scale, contents in found.items():
            if name in contents:
                parts.append(_section(table(contents[name]), job.place(results, scale), page))
    searches = sorted(results.glob("search/*/record.json"))
    parts += [f"## Where settings come from\n\n{REASONS}"] * bool(searches) + [
        _search(path, page) for path in searches
    ]
    page.parent.mkdir(parents=True, exist_ok=True)
    _write(page, "\n\n".join(parts))
    return page


def _claims(found: Mapping[str, Found]) -> list[str]:
    lines = ["| the paper says | our figure | scale | verdict |", "|---|---|---|---|"]
    for claim in CLAIMS:
        findings = {scale: claim.check(contents) for scale, contents in found.items()}
        scale = next(
            (scale for scale, finding in findings.items() if finding.holds is not None), None
        )
        finding = NOT_MEASURED if scale is None else findings[scale]
        verdict = VERDICT[finding.holds] + (
            f": {claim.cause}" if claim.cause and finding.holds is False else ""
        )
        lines.append(f"| {claim.text} | {finding.figure} | {scale or '-'} | {verdict} |")
    return lines


def _targets(found: Found) -> list[str]:
    lines = ["| | the paper | at least | ours | |", "|---|---|---|---|---|"]
    for row in (_as_row(claim, found) for claim in TARGETS):
        met = f"{row['met']}: {row['cause']}" if row["cause"] else row["met"]
        lines.append(
            f"| {row['target']} | {row['paper']} | {row['wanted']} | {row['ours']} | {met} |"
        )
    return lines


def _as_row(claim: Claim, found: Found) -> dict[str, str]:
    finding = claim.check(found)
    return {
        "target": claim.text,
        "paper": claim.paper,
        "wanted": claim.wanted,
        "ours": finding.figure,
        "met": MET[finding.holds],
        "cause": claim.cause if finding.holds is False else "",
    }


def _section(text: str, folder: Path, page: Path) -> str:
    """A table as a section of the page, with its figure and its record."""
    away = Path(os.path.relpath(folder, page.parent)).as_posix()
    title, _, rest = text.removeprefix("# ").partition("\n")
    figure = f"![{title}]({away}/figure.png)\n\n" if (folder / "figure.png").exists() else ""
    return f"## {title}\n\n{figure}{rest.strip()}\n\n[Record]({away}/record.json)."


def _search(path: Path, page: Path) -> str:
    """The record of a search: one row for every setting that was tried."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        rows: list[dict[str, Any]] = list(record["result"])
        names = list(dict.fromkeys(name for row in rows for name in row if name != "commit"))
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise ValueError(
            f"{path} is no record of a search, or a damaged one: move it away."
        ) from reason
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    lines += ["| " + " | ".join(_cell(row.get(name)) for name in names) + " |" for row in rows]
    away = Path(os.path.relpath(path, page.parent)).as_posix()
    made = f"Made by `{record['command']}`. " if record.get("command") else ""
    return "\n\n".join(
        [
            f"### {record.get('title') or path.parent.name}",
            "\n".join(lines),
            f"{made}[Record]({away}).",
        ]
    )


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _write(path: Path, text: str) -> None:
    with whole_file(path) as aside:
        aside.write_text(text + "\n", encoding="utf-8", newline="\n")
