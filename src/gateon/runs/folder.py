"""The directory of a run: its checkpoints and its record. A directory holds exactly one run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..storage import checkpoint
from ..storage.files import CheckpointWarning
from .record import Record

__all__ = [
    "CheckpointWarning",
    "checkpoint_path",
    "checkpoints",
    "finished_record",
    "folder_made",
    "held_specification",
    "is_checkpoint",
    "is_finished",
    "keep_only",
    "last_checkpoint",
    "newest",
]

NAME = re.compile(r"checkpoint-([0-9]+)-([0-9]+)\.safetensors")
OLD = "checkpoint.safetensors"  # the one name there was with schema 1


def folder_made(folder: Path) -> Path:
    """Create the directory if needed; refuse links under the names that are written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        links = [
            path
            for path in folder.iterdir()
            if path.is_symlink() and path.name.endswith((".lock", ".part"))
        ]
    except OSError as reason:
        raise ValueError(
            f"{folder} cannot be written ({reason.strerror}): choose another output directory."
        ) from reason
    if links:
        raise ValueError(
            f"{links[0]} is a symbolic link, and files are not written through links: remove it."
        )
    return folder


def checkpoint_path(folder: Path, task: int, step: int) -> Path:
    """Where the checkpoint of a position is.

    >>> checkpoint_path(Path("run"), 3, 120).as_posix()
    'run/checkpoint-0003-000120.safetensors'
    """
    return folder / f"checkpoint-{task:04}-{step:06}.safetensors"


def is_checkpoint(name: str) -> bool:
    """Whether a file of a run is a checkpoint, by its name.

    >>> is_checkpoint("checkpoint-0003-000120.safetensors"), is_checkpoint("record.json")
    (True, False)
    """
    return name == OLD or NAME.fullmatch(name) is not None


def checkpoints(folder: Path) -> list[Path]:
    """All checkpoints, the furthest position first."""
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
    old = [folder / OLD] * (folder / OLD).exists()
    return sorted(found, key=_position, reverse=True) + old


def _position(path: Path) -> tuple[int, int]:
    """The tasks and steps in a checkpoint's name."""
    name = NAME.fullmatch(path.name)
    return (int(name[1]), int(name[2])) if name else (0, 0)


def newest(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The latest intact checkpoint and its state; warn of a damaged one, or fail if all are."""
    damaged: list[checkpoint.DamagedError] = []
    for path in checkpoints(folder):
        try:
            state = checkpoint.load(path)
        except checkpoint.DamagedError as reason:
            damaged.append(reason)
            continue
        if damaged:
            told = str(damaged[0]).rpartition(":")[0]
            warnings.warn(
                f"{told}: going on from the one before, {path.name}.",
                CheckpointWarning,
                stacklevel=2,
            )
        return path, state
    if damaged:
        raise damaged[0]
    return None


def keep_only(folder: Path, kept: Collection[Path]) -> None:
    """Remove all other checkpoints, and files that a dead process left half-written."""
    halves = [*folder.glob("checkpoint*.part"), *folder.glob("record.json.part")]
    halves += folder.glob("trace.npz.part")
    for path in [*checkpoints(folder), *halves]:
        if path not in kept:
            path.unlink(missing_ok=True)


def last_checkpoint(folder: Path, tasks: int) -> Path | None:
    """The checkpoint of a finished run with this many tasks, if it was kept."""
    paths = [checkpoint_path(folder, tasks, 0), folder / OLD]
    return next((path for path in paths if path.exists()), None)


def finished_record(folder: Path) -> Record | None:
    """The record in a directory, if a run was finished there."""
    path = folder / "record.json"
    return Record.load(path) if path.exists() else None


def is_finished(folder: Path) -> bool:
    """Whether the directory has a record, and no checkpoint of more tasks that goes beyond it."""
    record = finished_record(folder)
    return record is not None and not _beyond(folder, record)


def _beyond(folder: Path, record: Record) -> list[Path]:
    """The checkpoints of a run that is being extended, the furthest position first."""
    end = (len(record.tasks), 0)
    return [path for path in checkpoints(folder) if _position(path) > end]


def held_specification(folder: Path) -> dict[str, Any]:
    """The specification of the run in a directory, finished or not."""
    record = finished_record(folder)
    if record is not None and not _beyond(folder, record):
        return record.specification
    found = checkpoints(folder) if folder.is_dir() else []
    for path in found:
        with suppress(checkpoint.DamagedError):  # told when the run goes on
            specification = checkpoint.load(path, only=["specification"]).get("specification")
            if not isinstance(specification, dict):
                raise ValueError(
                    f"{path} is not a checkpoint of a run: choose the directory of one."
                )
            return specification
    if found:
        raise ValueError(
            f"Every checkpoint in {folder} is damaged: gateon inspect tells how; "
            "start the run again elsewhere."
        )
    raise ValueError(f"{folder} holds no run to go on with: begin one with gateon run.")
