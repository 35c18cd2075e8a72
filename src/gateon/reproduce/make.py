"""Makes a table or a figure: runs what is missing, then collects and writes all there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ..options.kinds import checked
from ..runs.compare import Seeds
from ..runs.record import Record
from ..runs.run import Progress
from ..runs.specification import Specification
from ..runs.specified import alone, learn
from ..storage.checkpoint import whole_file
from ..workers.board import Board, NoBoard
from ..workers.engine import Engine
from ..workers.plan import Listed, Piece
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
    engine: Engine | None = None,
    board: Callable[[], Board] = NoBoard,
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
        engine: where the runs are done; by default one after another in this process.
        board: makes the display of all runs, where workers do them.

    Returns:
        The directory of the results.
    """
    engine = engine or Engine()
    folder, size = (out.resolve() if engine.on else out) / scale, table.scale(scale)
    wanted = cells(table, scale, rows=rows, columns=columns, streams=streams, changes=changes)
    runs = list(_each(wanted, _seeds(seeds, size.seeds)))
    work = Listed(_pieces(table, [one for _, one in runs], folder, size))
    failed: dict[tuple[str, str, str], str] = {}
    command = f"gateon reproduce {table.asked or table.name} --scale {scale}"
    try:
        engine.carry_out(work, folder, progress=progress, board=board)
    finally:
        for cell, specification in runs:
            reason = work.results.get(place_of(table, specification, folder).name)
            if reason is not None:
                failed[cell.place] = reason
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


def _pieces(table: Table, runs: Sequence[Specification], folder: Path, size: Scale) -> list[Piece]:
    """What is not finished; isolated networks that several runs need are one piece, done before."""
    found: dict[str, Piece] = {}
    for specification in runs:
        if is_finished(table, specification, folder):
            continue
        after: tuple[str, ...] = ()
        if _needs_alone(table, specification):
            plain = isolated_of(specification, size)
            own = folder_of(plain, folder)
            learn_plain = partial(_learn_once, plain, own.name)
            found.setdefault(own.name, Piece(own.name, own, learn_plain))
            after = (own.name,)
        place = place_of(table, specification, folder)
        do = partial(_run, table, specification, size)
        found.setdefault(place.name, Piece(place.name, place, do, after))
    return list(found.values())


def _needs_alone(table: Table, specification: Specification) -> bool:
    measured = "accuracy_deviation" in table.measures and not table.look
    return measured and specification.method.name != "isolated"


def _run(
    table: Table, specification: Specification, size: Scale, folder: Path, progress: Progress
) -> str | None:
    """One run, if it is not finished, with what is kept beside it; or why it failed."""
    place = place_of(table, specification, folder)
    if table.look:
        found = getattr(inside, table.look)(specification, progress)
        place.mkdir(parents=True, exist_ok=True)
        write_json(found, place / "found.json")
        return None
    failed = _learn_once(specification, place.name, folder, progress)
    if failed is None and _needs_alone(table, specification):
        own = folder_of(isolated_of(specification, size), folder)
        if not is_whole(own):
            return "The isolated networks failed."
        apart = Record.load(own / "record.json")
        beside = {"accuracy": apart.immediate(), "macro_f1": apart.immediate("macro_f1")}
        write_json(beside, place / "alone.json")
    return failed


def _learn_once(
    specification: Specification, name: str, folder: Path, progress: Progress
) -> str | None:
    """A run, if it is not whole; why it failed, which is a result too."""
    place = folder / name
    try:
        if not is_whole(place):
            _learn(specification, place, progress)
    except (FloatingPointError, MemoryError) as reason:
        return str(reason)
    return None


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
