"""The directory of a run: its checkpoints and its record. A directory holds exactly one run."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..storage import checkpoint
from ..storage.files import CheckpointWarning
from .record import Record
from .specification import Specification

__all__ = [
    "CheckpointWarning",
    "check_same",
    "checkpoint_path",
    "checkpoints",
    "finished_run",
    "folder_made",
    "held_specification",
    "keep_only",
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


def checkpoints(folder: Path) -> list[Path]:
    """All there are, that of the furthest position first."""
    found = [
        (int(name[1]), int(name[2]), path)
        for path in folder.iterdir()
        if (name := NAME.fullmatch(path.name))
    ]
    return [path for *_, path in sorted(found, reverse=True)] + [folder / OLD] * (
        folder / OLD
    ).exists()


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
    """Remove all other checkpoints, and what a process that died left half-written."""
    halves = [*folder.glob("checkpoint*.part"), *folder.glob("record.json.part")]
    for path in [*checkpoints(folder), *halves]:
        if path not in kept:
            path.unlink(missing_ok=True)


def finished_run(folder: Path, asked: Record) -> Record | None:
    """The record in the directory, if there is one; that of another run is an error."""
    path = folder / "record.json"
    if not path.exists():
        return None
    record = Record.load(path)
    check_same(record.specification, record.data, record.numerics, asked, path)
    return record


def held_specification(folder: Path) -> dict[str, Any]:
    """What the run in a directory was asked for, finished or not."""
    if (folder / "record.json").exists():
        return Record.load(folder / "record.json").specification
    found = checkpoints(folder) if folder.is_dir() else []
    for path in found:
        with suppress(checkpoint.DamagedError):  # told when the run goes on
            specification = checkpoint.load(path, only=["specification"]).get("specification")
            if not isinstance(specification, dict):
                raise ValueError(f"{path} is no checkpoint of a run: choose the directory of one.")
            return specification
    if found:
        raise ValueError(
            f"Every checkpoint in {folder} is damaged: gateon inspect tells how; "
            "begin the run anew elsewhere."
        )
    raise ValueError(f"{folder} holds no run to go on with: begin one with gateon run.")


def check_same(
    specification: Mapping[str, Any],
    data: Mapping[str, Any],
    numerics: int,
    asked: Record,
    path: Path,
) -> None:
    """Refuse a directory that holds another run than the one asked for.

    The data must be the same too: files may change, and stand-ins make room for the real ones.

    Args:
        specification, data, numerics: of the run that was found.
        asked: a record of the run asked for.
        path: where it was found.
    """
    wanted, held = _comparable(asked.specification), _comparable(specification)
    differs = next((key for key in {**wanted, **held} if held.get(key) != wanted.get(key)), None)
    if differs is not None:
        other = f"another run, with {differs} {held.get(differs)!r} and not {wanted.get(differs)!r}"
    elif numerics != asked.numerics:
        other = f"a run of numerics version {numerics}, and this gateon has {asked.numerics}"
    elif _plain(data.get("sha256")) != _plain(asked.data.get("sha256")):
        other = f"a run on other data, {data.get('name')} from {data.get('from')}"
    else:
        return
    raise ValueError(
        f"{path.parent} holds {other}: choose another output directory; nothing was changed."
    )


def _comparable(specification: Mapping[str, Any]) -> dict[str, Any]:
    """Every option by its dotted name: older specifications lack options, or call them otherwise.

    A run that was begun from Python has settings of its own, which stay as they are.
    """
    try:
        return Specification.from_options(specification).flat()
    except ValueError:
        return {str(key): _plain(value) for key, value in specification.items()}


def _plain(value: Any) -> Any:
    """As JSON would give it back."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and math.isnan(value):
        return None
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
