"""What is in the directory of a run, and what is wrong with it. Reads only."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..storage import checkpoint
from ..storage.lock import owner_of
from ..tracing.trace import Trace
from .folder import checkpoints, is_finished
from .record import TRACE, Record

__all__ = ["Inspection", "inspect"]


@dataclass
class Inspection:
    """What was found, one line each, and what is wrong, one sentence each."""

    found: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def inspect(folder: Path) -> Inspection:
    """Look at everything in the directory of a run; every checkpoint is read and checked.

    >>> import tempfile
    >>> inspect(Path(tempfile.mkdtemp())).found
    ['no run']
    """
    if not folder.is_dir():
        raise ValueError(f"There is no directory {folder}: give the directory of a run.")
    seen = Inspection()
    _look_at_record(folder, seen)
    _look_at_trace(folder / TRACE, seen)
    usable = 0
    for path in checkpoints(folder):
        usable += _look_at_checkpoint(path, seen)
    for path in sorted(folder.glob("*.part")):
        seen.found.append(
            f"{path.name}: left half-written by a process that died; the next run removes it"
        )
    owner = owner_of(folder)
    if owner is not None:
        seen.found.append(f"at work: {owner}")
    if not seen.found and not seen.wrong:
        seen.found.append("no run")
    elif usable and owner is None and not _is_over(folder):
        seen.found.append(f"unfinished: gateon resume {folder} goes on with it")
    return seen


def _is_over(folder: Path) -> bool:
    """Whether nothing is left to do; a damaged record is reported instead."""
    try:
        return is_finished(folder)
    except (ValueError, OSError):
        return True


def _look_at_record(folder: Path, seen: Inspection) -> None:
    path = folder / "record.json"
    if not path.exists():
        return
    try:
        record = Record.load(path)
    except (ValueError, OSError) as reason:
        seen.wrong.append(str(reason))
        return
    final = record.summary.get("continual_accuracy")
    percent = "" if final is None else f", continual accuracy {100 * final:.2f}"
    seen.found.append(
        f"record.json: {record.name}, finished, {len(record.accuracy)} tasks{percent} "
        f"(schema {record.schema})"
    )


def _look_at_trace(path: Path, seen: Inspection) -> None:
    if not path.exists():
        return
    try:
        seen.found.append(f"{path.name}: {Trace.load(path)}")
    except (ValueError, OSError) as reason:
        seen.wrong.append(str(reason))


def _look_at_checkpoint(path: Path, seen: Inspection) -> bool:
    """Whether it is whole."""
    try:
        state = checkpoint.load(path)
        position = state["position"]
        place = f"{position['task']} tasks done, step {position['step']} of the next"
    except (ValueError, OSError) as reason:
        seen.wrong.append(str(reason))
        return False
    except (KeyError, TypeError):
        seen.wrong.append(f"{path} is whole, but no checkpoint of a run.")
        return False
    seen.found.append(
        f"{path.name}: {place}, {path.stat().st_size / 1e6:.1f} MB, whole: {', '.join(state)}"
    )
    return True
