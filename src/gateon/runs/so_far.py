"""The record of a run that is still going on, as far as its newest checkpoint tells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..storage import checkpoint
from .folder import checkpoints
from .record import Record
from .state import found_in

__all__ = ["SoFar", "so_far"]

PARTS = ("specification", "data", "numerics", "inputs", "position", "found", "times")


@dataclass(frozen=True)
class SoFar:
    """What a run has found until now.

    Args:
        record: of the tasks that were learned and measured.
        tasks: how many there will be.
        step: how many batches of the next one are learned.
    """

    record: Record
    tasks: int
    step: int


def so_far(folder: Path) -> SoFar | None:
    """What an unfinished run has found; None if nothing can be read of it yet."""
    for path in checkpoints(folder):
        try:
            state = checkpoint.load(path, only=PARTS)
            found, learned = found_in(state), int(state["position"]["task"])
            seconds = state["times"]["seconds"]
            tasks, shape = int(state["inputs"]["tasks"]), state["inputs"]["shape"]
        except (ValueError, KeyError, TypeError, OSError):
            continue
        names = ("tasks", "identities", "contexts", "curves", "losses", "labels", "samples")
        asked = state["specification"]
        record = Record(
            _name(asked, path.parent),
            asked,
            state["data"],
            **found | {name: found[name][:learned] for name in names},
            seconds=seconds[:learned],
            shape=shape,
            classes=state["inputs"]["classes"],
            part=asked.get("measuring", {}).get("part", "test"),
            numerics=state.get("numerics", 1),
        )
        return SoFar(record, tasks, int(state["position"]["step"]))
    return None


def _name(asked: dict[str, object], folder: Path) -> str:
    parts = (asked.get("stream"), asked.get("method"))
    names = [str(part.get("name", "")) for part in parts if isinstance(part, dict)]
    return " ".join(names) or folder.name
