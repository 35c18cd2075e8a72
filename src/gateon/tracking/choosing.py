"""From the names of trackers to trackers; what is missing is told before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..options.kinds import nearest
from .tracker import Tracker

__all__ = ["TRACKERS", "tracker_named", "trackers_for"]

# By name of the tracker, which is that of its package: the file and class here.
TRACKERS = {
    "tensorboard": "to_tensorboard:TensorBoard",
    "mlflow": "to_mlflow:MLflow",
    "wandb": "to_wandb:WandB",
    "trackio": "to_trackio:Trackio",
}
PARTS = ("name", "start", "scalars", "artefact", "end")


def tracker_named(name: str) -> Tracker:
    """A new tracker; ValueError if there is none of this name, ImportError if it is not installed.

    >>> tracker_named("mlfow")
    Traceback (most recent call last):
    ...
    ValueError: There is no tracker 'mlfow', perhaps 'mlflow': choose tensorboard, mlflow, wandb, trackio.
    """
    if name not in TRACKERS:
        raise ValueError(
            f"There is no tracker {name!r}{nearest(name, TRACKERS)}: choose {', '.join(TRACKERS)}."
        )
    if find_spec(name) is None:
        raise ImportError(f"The tracker {name} is not installed: pip install {name}.")
    file, _, kind = TRACKERS[name].partition(":")
    made: Tracker = getattr(import_module(f".{file}", __package__), kind)()
    return made


def trackers_for(asked: Sequence[str | Tracker]) -> list[Tracker]:
    """Trackers by name or as they are; each kind once.

    Args:
        asked: names, or objects with the members of `Tracker`.
    """
    found: dict[str, Tracker] = {}
    for one in asked:
        tracker: Any = tracker_named(one) if isinstance(one, str) else one
        missing = [part for part in PARTS if not hasattr(tracker, part)]
        if missing:
            raise ValueError(
                f"{one!r} is no tracker, since it has no {missing[0]}: give a name, or an object "
                "with the members of gateon.tracking.tracker.Tracker."
            )
        found.setdefault(tracker.name, tracker)
    return list(found.values())
