"""Several methods with several seeds side by side, as a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..options.kinds import checked
from ..runs.compare import Comparison, Seeds, side_by_side
from ..runs.progress import Progress
from ..runs.record import Record
from ..runs.specification import Specification
from ..runs.specified import alone, isolated_folder, learn
from ..tracing.recorder import can_be_traced
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
    trace: Sequence[str] | None = None,
    trace_every: int | None = None,
    trackers: Sequence[str] = (),
    engine: Engine | None = None,
    progress: Callable[[], Progress | None] = lambda: None,
    board: Callable[[], Board] = NoBoard,
) -> Comparison:
    """Every method with every seed, each in a directory of its own below `out`.

    Args:
        specification: common to all; options of its method apply to the methods that have them.
        methods: their names.
        seeds: how many, from the specification's on.
        out: directory of all runs.
        options: further options of methods by dotted name: each method takes those it has.
        isolated: also train a network on each task alone, for the accuracy deviation.
        trace: patterns of the sites to trace, in the runs of methods with gates.
        trace_every: steps between samples of the traces.
        trackers: names of those that follow every run, see `gateon.run`.
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
    engine = engine or Engine()
    out = out.resolve() if engine.on else out
    followed: dict[str, Any] = {"trace": trace, "trace_every": trace_every, "trackers": trackers}
    plan = Listed(pieces_of(runs, out, isolated=isolated, **followed))
    engine.carry_out(plan, out, progress=progress, board=board)
    records = Comparison()
    for name, one in runs.items():
        record = plan.results[name]
        if engine.store is not None:  # it was made where this machine does not see
            record = Record.load(out / name / "record.json")
        records.setdefault(one.method.name, []).append(record)
    return records


def pieces_of(
    runs: Mapping[str, Specification],
    out: Path,
    *,
    isolated: bool = False,
    trace: Sequence[str] | None = None,
    trace_every: int | None = None,
    trackers: Sequence[str] = (),
) -> list[Piece]:
    """A piece for every run; isolated networks that several need are one piece, done before.

    Args:
        runs: specifications by the name of their directory.
        out: directory of all runs.
        isolated: whether the runs need isolated networks.
        trace: patterns of the sites to trace, in the runs of methods with gates.
        trace_every: steps between samples of the traces.
        trackers: names of those that follow every run, see `gateon.run`.
    """
    found: dict[str, Piece] = {}
    for name, one in runs.items():
        apart = None
        if isolated and one.method.name != "isolated":
            one.make_learner(one.make_stream())  # fail before anything runs if one cannot be built
            apart = isolated_folder(one, out)
            do = partial(_one_run, alone(one), apart.name, None)
            found.setdefault(apart.name, Piece(apart.name, apart, do))
        after = () if apart is None else (apart.name,)
        followed: dict[str, Any] = {
            "trace": trace,
            "trace_every": trace_every,
            "trackers": trackers,
        }
        beside = None if apart is None else apart.name
        run = partial(_one_run, one, name, beside, **followed)
        found[name] = Piece(name, out / name, run, after)
    return list(found.values())


def _one_run(
    specification: Specification,
    name: str,
    apart: str | None,
    out: Path,
    progress: Progress,
    *,
    trace: Sequence[str] | None = None,
    trace_every: int | None = None,
    trackers: Sequence[str] = (),
) -> Record:
    """One run, or what is missing of it, beside isolated networks that are finished."""
    stream = specification.make_stream()
    learner = specification.make_learner(stream)
    traced = can_be_traced(learner)
    return learn(
        specification,
        stream,
        learner,
        out / name,
        isolated=None if apart is None else Record.load(out / apart / "record.json"),
        progress=progress,
        trace=trace if traced else None,
        trace_every=trace_every if traced else None,
        trackers=trackers,
    )
