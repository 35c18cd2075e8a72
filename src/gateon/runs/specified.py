"""The run of a specification, and that of the isolated networks it may be compared with."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from ..learners.protocol import AnyLearner
from ..parallel.processes import current
from ..streams.base import Stream
from ..tracking.tracker import Tracker
from .progress import Progress
from .record import Record
from .run import run
from .specification import Specification

__all__ = ["alone", "isolated_folder", "isolated_record", "learn", "run_specification"]


def run_specification(
    specification: Specification,
    out: Path,
    *,
    isolated: bool = False,
    progress: Progress | None = None,
    trace: Sequence[str] | None = None,
    trace_every: int | None = None,
    trackers: Sequence[str | Tracker] = (),
) -> Record:
    """Run a specification, or continue it, and save the specification beside the record."""
    stream = specification.make_stream()
    apart = None
    if isolated and specification.method.name != "isolated":
        specification.make_learner(stream)  # fail before anything runs if it cannot be built
        apart = isolated_record(specification, out.parent, progress)
    return learn(
        specification,
        stream,
        specification.make_learner(stream),
        out,
        isolated=apart,
        progress=progress,
        restore=False,
        trace=trace,
        trace_every=trace_every,
        trackers=trackers,
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
    restore: bool = True,
    save_every: float | None = None,
    trace: Sequence[str] | None = None,
    trace_every: int | None = None,
    trackers: Sequence[str | Tracker] = (),
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
        restore=restore,
        trace=trace,
        trace_every=trace_every,
        trackers=trackers,
    )
    current().first(lambda: specification.save(out / "specification.toml"))
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
    own = isolated_folder(specification, folder)
    return run_specification(alone(specification), own, progress=progress)


def isolated_folder(specification: Specification, folder: Path) -> Path:
    """The directory below `folder` of the isolated networks that belong to a specification."""
    plain = alone(specification)
    # a stand-in is not the real thing
    data = sha256(str(plain.make_stream().source.get("sha256")).encode()).hexdigest()[:6]
    return folder / f"isolated-{plain.key()}-{data}"
