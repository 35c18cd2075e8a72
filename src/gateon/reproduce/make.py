"""Makes a table or a figure: runs what is missing, collects what is there, writes record, table and figure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..methods.registry import METHODS
from ..options.kinds import checked
from ..runs import legacy
from ..runs.compare import Seeds
from ..runs.environment import environment
from ..runs.record import Record
from ..runs.run import Progress
from ..runs.specification import Specification
from ..runs.specified import alone, learn
from ..storage.checkpoint import whole_file
from .job import Cell, Fields, Job, Scale, cells, differences, folder_of, settings
from .measures import INSIDE, SERIES, keep_inside, measures, reset_peak
from .show import table

__all__ = ["OUT", "RESULTS", "isolated_of", "plan", "read", "reproduce"]

Entry = dict[str, Any]
OUT, RESULTS = Path("runs/reproduce"), Path("results")


def reproduce(
    job: Job,
    scale: str = "quick",
    *,
    out: Path = OUT,
    results: Path = RESULTS,
    seeds: int | None = None,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    streams: Sequence[str] = (),
    changes: Fields | None = None,
    progress: Callable[[], Progress | None] = lambda: None,
) -> Path:
    """Run what is missing of a table or figure and write it to results/GROUP/NAME-SCALE; that directory.

    Whatever stops it, the runs that are finished are written, the others go on with the next call,
    and what an earlier call found of other rows stays.

    Args:
        job: one of `JOBS`.
        scale: quick, cpu or paper.
        out: where the runs are kept, shared by all jobs.
        results: where record.json, table.md and the figure go.
        seeds: how many; None for the scale's number.
        rows, columns, streams: which of them to run; all the scale has by default.
        changes: fields of the specification that override all others.
        progress: makes who is told how a run goes.
    """
    folder, size = out / scale, job.scale(scale)
    wanted = cells(job, scale, rows=rows, columns=columns, streams=streams, changes=changes)
    failed: dict[tuple[str, str, str], str] = {}
    count = _seeds(seeds, size.seeds)
    try:
        for cell, specification in _each(wanted, count):
            try:
                _run(job, specification, folder, size, progress())
            except (
                FloatingPointError,
                MemoryError,
            ) as reason:  # a result too, and no reason to lose the others
                failed[cell.place] = str(reason)
    finally:
        content = _content(job, scale, folder, results, changes, failed)
        content["command"] = f"gateon reproduce {job.name} --scale {scale}" + (
            f" --seeds {seeds}" if seeds else ""
        )
        written = _write(job, content, job.place(results, scale))
    return written


def plan(
    job: Job,
    scale: str,
    *,
    out: Path = OUT,
    seeds: int | None = None,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    streams: Sequence[str] = (),
    changes: Fields | None = None,
) -> list[tuple[Cell, Specification, bool]]:
    """The runs a job asks for: the place, what is run there, and whether it is finished."""
    wanted = cells(job, scale, rows=rows, columns=columns, streams=streams, changes=changes)
    runs = _each(wanted, _seeds(seeds, job.scale(scale).seeds))
    return [
        (cell, specification, _finished(job, specification, out / scale))
        for cell, specification in runs
    ]


def read(path: Path) -> dict[str, Any]:
    """The content of a record that `reproduce` wrote, with the settings of old entries in sections."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content["entries"], list):
            raise TypeError
        entries = [_with_sections(entry) for entry in content["entries"]]
    except (ValueError, KeyError, TypeError) as reason:
        raise ValueError(
            f"{path} is no record of gateon reproduce, or a damaged one: move it away."
        ) from reason
    return {**content, "entries": entries}


def _with_sections(entry: Entry) -> Entry:
    """An entry with its settings as `settings` has them; those of old ones were flat."""
    found = entry["settings"]
    if not legacy.is_flat(found):
        return entry
    options = {name: value for name, value in found.items() if name not in ("made", "key")}
    return entry | {"settings": settings(Specification.from_options(options))}


def _seeds(asked: int | None, usual: int) -> int:
    """How many seeds there are; more than anybody waits for are refused."""
    if asked is not None:
        checked("seeds", asked, Seeds)
    return asked or usual


def _each(wanted: Sequence[Cell], seeds: int) -> Iterator[tuple[Cell, Specification]]:
    for cell in wanted:
        if cell.specification is not None:
            for seed in range(seeds):
                yield cell, cell.specification.with_options({"seed": seed})


def _place(job: Job, specification: Specification, folder: Path) -> Path:
    """Runs are shared by all jobs; what a job looks at by itself is its own."""
    own = folder_of(specification, folder)
    return own if job.look is None else own.with_name(f"{own.name}-{job.name}")


def _finished(job: Job, specification: Specification, folder: Path) -> bool:
    place = _place(job, specification, folder)
    if job.look is not None:
        return (place / "found.json").exists()
    by_itself = "accuracy_deviation" not in job.measures or specification.method.name == "isolated"
    return _is_whole(place) and (by_itself or (place / "alone.json").exists())


def _is_whole(place: Path) -> bool:
    """Whether a run is finished, and what is kept beside it was written too."""
    return (place / "record.json").exists() and (place / INSIDE).exists()


def _run(
    job: Job, specification: Specification, folder: Path, size: Scale, progress: Progress | None
) -> None:
    """One run, if it is not finished, with what is kept beside it."""
    if _finished(job, specification, folder):
        return
    place = _place(job, specification, folder)
    if job.look is not None:
        found = job.look(specification, progress)
        place.mkdir(parents=True, exist_ok=True)
        _write_json(found, place / "found.json")
        return
    if not _is_whole(place):
        _learn(specification, place, progress)
    if "accuracy_deviation" in job.measures and specification.method.name != "isolated":
        plain = isolated_of(specification, size)
        own = folder_of(plain, folder)
        if not _is_whole(own):
            _learn(plain, own, progress)
        apart = Record.load(own / "record.json")
        _write_json(
            {"accuracy": apart.immediate(), "macro_f1": apart.immediate("macro_f1")},
            place / "alone.json",
        )


def isolated_of(specification: Specification, size: Scale) -> Specification:
    """The same for networks that learn one task each, where asked for the first tasks only.

    As `compare.isolated_record` has it, but kept where a row of isolated networks finds it: they
    take long.
    """
    plain = alone(specification).with_options(
        {legacy.NAMES[name]: value for name, value in size.plain.items()}
    )
    return (
        plain
        if size.alone is None
        else plain.with_options(
            {"stream.tasks": min(size.alone, specification.get("stream.tasks") or size.alone)}
        )
    )


def _learn(specification: Specification, place: Path, progress: Progress | None) -> None:
    """Like `run_specification`, with the learner at hand afterwards: a record does not tell which gates were open."""
    stream = specification.make_stream()
    learner = specification.make_learner(stream)
    # of a run that was stopped before what is beside it was written
    (place / "record.json").unlink(missing_ok=True)
    reset_peak()
    # what is large is not needed again
    record = learn(specification, stream, learner, place, progress=progress, keep=False)
    keep_inside(learner, stream, record.contexts, place)


def _content(
    job: Job,
    scale: str,
    folder: Path,
    results: Path,
    changes: Fields | None,
    failed: Mapping[tuple[str, str, str], str],
) -> dict[str, Any]:
    """All there is to say: everything that is finished, run now or before."""
    everything = cells(job, scale, columns=list(job.columns), changes=changes)
    before = job.place(results, scale) / "record.json"
    kept = {
        (e["row"], e["column"], e["stream"]): e
        for e in (read(before)["entries"] if before.exists() else [])
    }
    entries = []
    for cell in everything:
        entry, old = _entry(job, cell, folder), kept.get(cell.place)
        if (
            old is not None
            and _is_current(old, cell)
            and (entry is None or len(old["seeds"]) > len(entry["seeds"]))
        ):
            entry = old
        if entry is None and cell.place in failed:
            entry = _described(cell) | {"failed": failed[cell.place], "seeds": [], "measures": {}}
        if entry is not None:
            entries.append(entry)
    _add_extra(entries)
    _add_deviation(entries)
    return {
        "name": job.name,
        "title": job.title,
        "scale": scale,
        "rows": list(dict.fromkeys(cell.row.label for cell in everything)),
        "columns": list(job.columns),
        "streams": list(job.streams),
        "measures": list(job.measures),
        "printed": job.printed,
        "paper": {
            cell.row.label: job.paper.get(cell.row.paper or cell.row.label, {})
            for cell in everything
        },
        "waiting": sorted(
            {cell.row.label for cell in everything if cell.row.fields.get("method") not in METHODS}
        ),
        "differences": differences(job, scale),
        "entries": entries,
        "environment": environment(),
    }


def _entry(job: Job, cell: Cell, folder: Path) -> Entry | None:
    """What the finished runs of one place found."""
    if cell.specification is None:
        return None
    finished: list[Path] = []
    while _finished(job, one := cell.specification.with_options({"seed": len(finished)}), folder):
        finished.append(_place(job, one, folder))
    if not finished:
        return None
    entry = _described(cell) | {"seeds": list(range(len(finished)))}
    if job.look is not None:
        return entry | {
            "found": [
                json.loads((place / "found.json").read_text(encoding="utf-8")) for place in finished
            ]
        }
    records = [Record.load(place / "record.json") for place in finished]
    each = [
        measures(record, place, _alone(place))
        for record, place in zip(records, finished, strict=True)
    ]
    series = {
        name: np.stack([SERIES[name](r, p) for r, p in zip(records, finished, strict=True)])
        for name in job.series
    }
    made = [
        {name: r.environment.get(name) for name in ("commit", "time", "threads", "processor")}
        for r in records
    ]
    return entry | {
        "data": records[0].data.get("name"),
        "made": made,
        "measures": {
            name: _over_seeds(np.array([one[name] for one in each]))
            for name in each[0]
            if all(name in o for o in each)
        },
        "series": {name: _over_seeds(values) for name, values in series.items()},
    }


def _add_extra(entries: Sequence[Entry]) -> None:
    """What a method keeps beyond the plain network, which is what finetuning keeps."""
    plain = {
        (e["column"], e["stream"]): e["measures"]["state_bytes"]["mean"]
        for e in entries
        if _is_plain(e)
    }
    for entry in entries:
        base, kept = (
            plain.get((entry["column"], entry["stream"])),
            entry.get("measures", {}).get("state_bytes"),
        )
        if base is not None and kept is not None:
            beyond = {
                "mean": kept["mean"] - base,
                "spread": kept["spread"],
                "each": [each - base for each in kept["each"]],
            }
            entry["measures"]["extra_bytes"] = beyond


def _add_deviation(entries: Sequence[Entry]) -> None:
    """The deviation (eq. 16) from the row of isolated networks, where there is one: with settings that are best for those."""
    measured = [entry for entry in entries if "immediate_accuracy" in entry.get("measures", {})]
    apart = {
        (e["column"], e["stream"]): e["measures"]
        for e in measured
        if e["settings"]["method"]["name"] == "isolated"
    }
    for entry in measured:
        alone = apart.get((entry["column"], entry["stream"]))
        if alone is not None and "accuracy_deviation" in entry["measures"]:
            isolated = alone["immediate_accuracy"]["mean"]
            ours = np.array(entry["measures"]["immediate_accuracy"]["each"])
            entry["measures"]["accuracy_deviation"] = _over_seeds((ours - isolated) / isolated)


def _is_plain(entry: Entry) -> bool:
    return entry["settings"]["method"]["name"] == "finetune" and "state_bytes" in entry.get(
        "measures", {}
    )


def _described(cell: Cell) -> Entry:
    assert cell.specification is not None
    method = cell.specification.make_method()
    return {
        "row": cell.row.label,
        "column": cell.column,
        "stream": cell.stream,
        "settings": settings(cell.specification),
        "replay": method.replay,
        "heads": cell.specification.network.heads == "per-task"
        or cell.specification.method.name == "isolated",
        "label_at_test": cell.specification.needs_label(),
    }


def _is_current(entry: Entry, cell: Cell) -> bool:
    """Whether an entry of an earlier record is of today's settings."""
    return cell.specification is not None and bool(
        entry["settings"] == settings(cell.specification)
    )


def _over_seeds(values: Any) -> dict[str, Any]:
    """Mean, standard deviation and, of plain numbers, each."""
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(values[0])
    found = {"mean": _plain(values.mean(axis=0)), "spread": _plain(spread)}
    return found | ({"each": _plain(values)} if values.ndim == 1 else {})


def _plain(value: Any) -> Any:
    """Numbers that JSON has, no longer than they need be."""
    rounded = np.round(np.asarray(value, dtype=np.float64), 6)
    return np.where(np.isnan(rounded), None, rounded).tolist()  # type: ignore[call-overload]


def _alone(place: Path) -> dict[str, list[float]]:
    """How well networks did that learn one task each; a file from before there was macro-F1 holds accuracies only."""
    path = place / "alone.json"
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {"accuracy": held} if isinstance(held, list) else dict(held)


def _write(job: Job, content: Mapping[str, Any], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(content, folder / "record.json")
    with whole_file(folder / "table.md") as aside:
        aside.write_text(table(content), encoding="utf-8", newline="\n")
    if job.draw is not None and content["entries"]:
        job.draw(content, folder / "figure")
    return folder


def _write_json(content: Any, path: Path) -> None:
    """As JSON, with every list of numbers on one line."""
    text = json.dumps(content, indent=1, allow_nan=False)
    text = re.sub(
        r"\[\s+((?:-?[\d.e+-]+|null)(?:,\s+(?:-?[\d.e+-]+|null))*)\s+\]", _on_one_line, text
    )
    with whole_file(path) as aside:
        aside.write_text(text + "\n", encoding="utf-8", newline="\n")


def _on_one_line(found: re.Match[str]) -> str:
    return "[" + re.sub(r",\s+", ", ", found[1]) + "]"
