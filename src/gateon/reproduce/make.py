"""Makes a table or a figure: runs what is missing, then collects and writes all there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..options.kinds import checked
from ..runs.compare import Seeds
from ..runs.record import Record
from ..runs.run import Progress
from ..runs.specification import Specification
from ..runs.specified import alone, learn
from ..storage.checkpoint import whole_file
from . import draw, inside
from .collect import content_of, is_finished, is_whole, place_of, write_json
from .findings import Content
from .measures import keep_inside, reset_peak
from .places import Cell, cells, folder_of
from .show import page
from .table import Options, Scale, Table

__all__ = ["OUT", "RESULTS", "isolated_of", "plan", "reproduce"]

OUT, RESULTS = Path("runs/reproduce"), Path("results")


def reproduce(
    table: Table,
    scale: str = "quick",
    *,
    out: Path = OUT,
    results: Path = RESULTS,
    seeds: int | None = None,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    streams: Sequence[str] = (),
    changes: Options | None = None,
    progress: Callable[[], Progress | None] = lambda: None,
) -> Path:
    """Run what is missing of a table or figure and write it to results/GROUP/NAME-SCALE.

    Whatever stops it, the runs that are finished are written, the others continue with the next
    call, and what an earlier call found of other rows stays.

    Args:
        table: which, see `gateon.reproduce.load`.
        scale: quick, cpu or paper.
        out: where the runs are kept, shared by all tables.
        results: where record.json, table.md and the figure go.
        seeds: how many; None for the scale's number.
        rows: which of them to run; all the scale has by default.
        columns: likewise.
        streams: likewise.
        changes: options that go before all others.
        progress: makes the progress display of a run.

    Returns:
        The directory of the results.
    """
    folder, size = out / scale, table.scale(scale)
    wanted = cells(table, scale, rows=rows, columns=columns, streams=streams, changes=changes)
    failed: dict[tuple[str, str, str], str] = {}
    count = _seeds(seeds, size.seeds)
    command = f"gateon reproduce {table.name} --scale {scale}"
    try:
        for cell, specification in _each(wanted, count):
            try:
                _run(table, specification, folder, size, progress())
            except (FloatingPointError, MemoryError) as reason:
                # A result too, and no reason to lose the others.
                failed[cell.place] = str(reason)
    finally:
        content = content_of(table, scale, folder, results, changes or {}, failed)
        content["command"] = command + (f" --seeds {seeds}" if seeds else "")
        written = _write(table, content, table.place(results, scale))
    return written


def plan(
    table: Table,
    scale: str,
    *,
    out: Path = OUT,
    seeds: int | None = None,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    streams: Sequence[str] = (),
    changes: Options | None = None,
) -> list[tuple[Cell, Specification, bool]]:
    """The runs a table asks for: the place, what is run there, and whether it is finished."""
    wanted = cells(table, scale, rows=rows, columns=columns, streams=streams, changes=changes)
    return [
        (cell, specification, is_finished(table, specification, out / scale))
        for cell, specification in _each(wanted, _seeds(seeds, table.scale(scale).seeds))
    ]


def isolated_of(specification: Specification, size: Scale) -> Specification:
    """The networks that learn one task each; of the first tasks only, where the scale says so.

    They take long, so they are kept where a row of isolated networks finds them.
    """
    plain = alone(specification).with_options(size.plain)
    if size.alone is None:
        return plain
    tasks = specification.get("stream.tasks") or size.alone
    return plain.with_options({"stream.tasks": min(size.alone, tasks)})


def _seeds(asked: int | None, usual: int) -> int:
    return usual if asked is None else int(checked("seeds", asked, Seeds))


def _each(wanted: Sequence[Cell], seeds: int) -> Iterator[tuple[Cell, Specification]]:
    for cell in wanted:
        if cell.specification is not None:
            for seed in range(seeds):
                yield cell, cell.specification.with_options({"seed": seed})


def _run(
    table: Table, specification: Specification, folder: Path, size: Scale, progress: Progress | None
) -> None:
    """One run, if it is not finished, with what is kept beside it."""
    if is_finished(table, specification, folder):
        return
    place = place_of(table, specification, folder)
    if table.look:
        found = getattr(inside, table.look)(specification, progress)
        place.mkdir(parents=True, exist_ok=True)
        write_json(found, place / "found.json")
        return
    if not is_whole(place):
        _learn(specification, place, progress)
    if "accuracy_deviation" in table.measures and specification.method.name != "isolated":
        plain = isolated_of(specification, size)
        own = folder_of(plain, folder)
        if not is_whole(own):
            _learn(plain, own, progress)
        apart = Record.load(own / "record.json")
        beside = {"accuracy": apart.immediate(), "macro_f1": apart.immediate("macro_f1")}
        write_json(beside, place / "alone.json")


def _learn(specification: Specification, place: Path, progress: Progress | None) -> None:
    """A run, and what is read off its learner: a record does not tell which gates were open."""
    stream = specification.make_stream()
    learner = specification.make_learner(stream)
    # A run may have been stopped before what is beside its record was written.
    (place / "record.json").unlink(missing_ok=True)
    reset_peak()
    record = learn(specification, stream, learner, place, progress=progress, keep=False)
    keep_inside(learner, stream, record.contexts, place)


def _write(table: Table, content: Content, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(content, folder / "record.json")
    if table.figure and content["entries"]:
        getattr(draw, table.figure)(content, folder / "figure")
    with whole_file(folder / "table.md") as aside:
        aside.write_text(page(content, bool(table.figure)), encoding="utf-8", newline="\n")
    return folder
