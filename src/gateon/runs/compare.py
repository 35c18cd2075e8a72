"""Runs by specification: one, its isolated networks, or several methods and seeds side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from ..learners.protocol import AnyLearner
from ..methods.registry import method_options
from ..options.kinds import Within, checked, flag
from ..streams.base import Stream
from .record import Record
from .run import Progress, run
from .specification import Specification

__all__ = [
    "Seeds",
    "alone",
    "compare",
    "isolated_record",
    "learn",
    "run_specification",
    "side_by_side",
]

Seeds = Annotated[int, Within(1, 10_000)]  # of one comparison


def run_specification(
    specification: Specification,
    out: Path,
    *,
    isolated: bool = False,
    progress: Progress | None = None,
) -> Record:
    """Run a specification, or continue it, and save the specification beside the record."""
    stream = specification.make_stream()
    apart = None
    if isolated and specification.method.name != "isolated":
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
    """`run` with a stream and a learner made from the specification, and its other options."""
    training, measuring = specification.training, specification.measuring
    record = run(
        stream,
        learner,
        out,
        steps=training.steps or 1,  # epochs go before
        epochs=training.epochs,
        batch=training.batch,
        seed=specification.seed,
        evaluate=measuring.evaluate,
        curves=measuring.curves,
        part=measuring.part,
        isolated=None if isolated is None else isolated.immediate(),
        isolated_macro_f1=None if isolated is None else isolated.immediate("macro_f1"),
        specification=specification.to_dict(),
        command=specification.command(),
        progress=progress,
        save_every=save_every,
        keep=keep,
    )
    specification.save(out / "specification.toml")
    return record


def alone(specification: Specification) -> Specification:
    """The same for networks that learn one task each, without what a method adds.

    >>> asked = {"stream.name": "split-mnist", "method.name": "ewc", "measuring.evaluate": "last"}
    >>> alone(Specification.from_options(asked)).measuring.evaluate
    'all'
    """
    return specification.with_options(
        {
            "method.name": "isolated",
            "measuring.evaluate": "all",
            "measuring.curves": None,
            "detector.contexts": "known",
            "training.keep_optimizer": False,
        }
    )


def isolated_record(
    specification: Specification, folder: Path, progress: Progress | None = None
) -> Record:
    """The record of networks that learn one task each: run once, then found again by its key."""
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
    options: Mapping[str, Any] | None = None,
    isolated: bool = False,
    progress: Callable[[], Progress | None] = lambda: None,
) -> dict[str, list[Record]]:
    """Every method with every seed, each in a directory of its own below `out`.

    Args:
        specification: common to all; options of its method hold for those that have them.
        methods: their names.
        seeds: how many, from the specification's on.
        out: directory of all runs.
        options: further options of methods by dotted name: each method takes those it has.
        isolated: also train a network on each task alone, for the accuracy deviation.
        progress: makes the progress display of a run.
    """
    wanted = side_by_side(specification, methods, options or {})
    checked("seeds", seeds, Seeds)
    records: dict[str, list[Record]] = {}
    for name, one in wanted.items():
        for seed in range(specification.seed, specification.seed + seeds):
            record = run_specification(
                one.with_options({"seed": seed}),
                out / f"{name}-{seed}",
                isolated=isolated,
                progress=progress(),
            )
            records.setdefault(name, []).append(record)
    return records


def side_by_side(
    specification: Specification, methods: Sequence[str], options: Mapping[str, Any]
) -> dict[str, Specification]:
    """The specification of every method; an option that none of them has is an error.

    >>> asked = Specification.from_options({"stream.name": "split-mnist"})
    >>> two = side_by_side(asked, ["ewc", "finetune"], {"method.strength": 5.0})
    >>> two["ewc"]["method.strength"], two["finetune"].get("method.strength")
    (5.0, None)
    """
    if not methods:
        raise ValueError("Name at least one method to compare.")
    known = {name: {f"method.{option}" for option in method_options(name)} for name in methods}
    for option in options:
        if not any(option in own for own in known.values()):
            names = ", ".join(methods)
            raise ValueError(f"None of {names} has the option {flag(option)}: leave it out.")
    return {
        name: specification.with_options(
            {"method.name": name} | {o: v for o, v in options.items() if o in own}
        )
        for name, own in known.items()
    }
