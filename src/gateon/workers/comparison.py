"""Several methods with several seeds side by side, as a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..options.kinds import checked
from ..runs.compare import Seeds, side_by_side
from ..runs.progress import Progress
from ..runs.record import Record
from ..runs.specification import Specification
from ..runs.specified import alone, isolated_folder, learn
from .board import Board, NoBoard
from .engine import Engine
from .plan import Listed, Piece

__all__ = ["compare", "pieces_of"]


def compare(
    specification: Specification,
    methods: Sequence[str],
    seeds: int,
    out: Path,
    *,
    options: Mapping[str, Any] | None = None,
    isolated: bool = False,
    engine: Engine | None = None,
    progress: Callable[[], Progress | None] = lambda: None,
    board: Callable[[], Board] = NoBoard,
) -> dict[str, list[Record]]:
    """Every method with every seed, each in a directory of its own below `out`.

    Args:
        specification: common to all; options of its method apply to the methods that have them.
        methods: their names.
        seeds: how many, from the specification's on.
        out: directory of all runs.
        options: further options of methods by dotted name: each method takes those it has.
        isolated: also train a network on each task alone, for the accuracy deviation.
        engine: where the runs are done; by default one after another in this process.
        progress: makes the progress display of a run, where they are done in this process.
        board: makes the display of all runs, where workers do them.
    """
    wanted = side_by_side(specification, methods, options or {})
    checked("seeds", seeds, Seeds)
    runs = {
        f"{name}-{seed}": one.with_options({"seed": seed})
        for name, one in wanted.items()
        for seed in range(specification.seed, specification.seed + seeds)
    }
    out = out.resolve() if engine is not None and engine.on else out
    plan = Listed(pieces_of(runs, out, isolated=isolated))
    (engine or Engine()).carry_out(plan, out, progress=progress, board=board)
    records: dict[str, list[Record]] = {}
    for name, one in runs.items():
        records.setdefault(one.method.name, []).append(plan.results[name])
    return records


def pieces_of(
    runs: Mapping[str, Specification], out: Path, *, isolated: bool = False
) -> list[Piece]:
    """A piece for every run; isolated networks that several need are one piece, done before.

    Args:
        runs: specifications by the name of their directory.
        out: directory of all runs.
        isolated: whether the runs need isolated networks.
    """
    found: dict[str, Piece] = {}
    for name, one in runs.items():
        apart = None
        if isolated and one.method.name != "isolated":
            one.make_learner(one.make_stream())  # fail before anything runs if one cannot be built
            apart = isolated_folder(one, out)
            do = partial(_one_run, alone(one), apart, None)
            found.setdefault(apart.name, Piece(apart.name, apart, do))
        after = () if apart is None else (apart.name,)
        found[name] = Piece(name, out / name, partial(_one_run, one, out / name, apart), after)
    return list(found.values())


def _one_run(
    specification: Specification, folder: Path, apart: Path | None, progress: Progress
) -> Record:
    """One run, or what is missing of it, beside isolated networks that are finished."""
    stream = specification.make_stream()
    return learn(
        specification,
        stream,
        specification.make_learner(stream),
        folder,
        isolated=None if apart is None else Record.load(apart / "record.json"),
        progress=progress,
    )
