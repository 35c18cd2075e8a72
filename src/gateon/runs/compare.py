"""Runs by specification: one, its isolated networks, or several methods and seeds side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..streams import Stream
from .record import Record
from .run import AnyLearner, Progress, run
from .specification import Specification, check_seeds

__all__ = ["alone", "compare", "isolated_record", "learn", "run_specification"]

# What changes a method and not the network, its data or its training.
METHOD_ONLY = (
    *("strength", "memory", "settings", "threshold", "window", "curves"),
    *(
        "density",
        "start",
        "steepness",
        "shared",
        "rescale",
        "rate",
        "epsilon",
        "floor",
        "relevance",
        "apply",
        "obstruct_head",
    ),
    *("prefer", "inherit", "gate_penalty"),
)


def run_specification(
    specification: Specification,
    out: Path,
    *,
    isolated: bool = False,
    progress: Progress | None = None,
) -> Record:
    """Run what a specification says, or go on with it; the specification is saved beside the record."""
    stream = specification.make_stream()
    apart = None
    if isolated and specification.method != "isolated":
        specification.make_learner(stream)  # what cannot be made is found before anything runs
        apart = isolated_record(specification, out.parent, progress)
    return learn(
        specification,
        stream,
        specification.make_learner(stream),
        out,
        isolated=apart,
        progress=progress,
    )


def learn(
    specification: Specification,
    stream: Stream,
    learner: AnyLearner,
    out: Path,
    *,
    isolated: Record | None = None,
    progress: Progress | None = None,
    keep: bool = True,
    save_every: float | None = None,
) -> Record:
    """`run` with a stream and a learner that the specification has made, and what it says besides."""
    record = run(
        stream,
        learner,
        out,
        steps=specification.steps,
        epochs=specification.epochs,
        batch=specification.batch,
        seed=specification.seed,
        evaluate=specification.evaluate,
        curves=specification.curves,
        part=specification.part,
        isolated=None if isolated is None else isolated.immediate(),
        isolated_macro_f1=None if isolated is None else isolated.immediate("macro_f1"),
        specification=specification.to_dict(),
        progress=progress,
        save_every=save_every,
        keep=keep,
        defaults=Specification(specification.stream).to_dict(),
    )
    specification.save(out / "specification.toml")
    return record


def alone(specification: Specification) -> Specification:
    """The same for networks that learn one task each, without what a method adds.

    >>> alone(Specification("split-mnist", method="ewc", strength=5.0)).strength is None
    True
    """
    same = {
        "method": "isolated",
        "evaluate": "all",
        "contexts": "known",
        "detector": "best",
        "keep_optimizer": False,
    }
    return _changed(specification, **same, **dict.fromkeys(METHOD_ONLY))


def isolated_record(
    specification: Specification, folder: Path, progress: Progress | None = None
) -> Record:
    """Networks of the same specification that learn one task each: run once, then found again by its key."""
    plain = alone(specification)
    # a stand-in is not the real thing
    data = sha256(str(plain.make_stream().source.get("sha256")).encode()).hexdigest()[:6]
    return run_specification(plain, folder / f"isolated-{plain.key()}-{data}", progress=progress)


def compare(
    specification: Specification,
    methods: Sequence[str],
    seeds: int,
    out: Path,
    *,
    isolated: bool = False,
    progress: Callable[[], Progress | None] = lambda: None,
) -> dict[str, list[Record]]:
    """Every method with every seed, each in a directory of its own below `out`."""
    if not methods:
        raise ValueError("Name at least one method to compare.")
    check_seeds(seeds)
    # all are checked before anything runs
    wanted = [_changed(specification, method=method) for method in dict.fromkeys(methods)]
    records: dict[str, list[Record]] = {}
    for one in wanted:
        for seed in range(specification.seed, specification.seed + seeds):
            folder = out / f"{one.method}-{seed}"
            record = run_specification(
                _changed(one, seed=seed), folder, isolated=isolated, progress=progress()
            )
            records.setdefault(one.method, []).append(record)
    return records


def _changed(specification: Specification, **values: Any) -> Specification:
    """The specification with other values, checked like those a user gives."""
    return Specification.from_dict(specification.to_dict() | values)
