"""The one data directory, and what a data set is once it is read from there."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...storage.files import check_utf8
from .fetch import Progress, SourceError, workplace

__all__ = ["Dataset", "UnavailableError", "bring", "digest", "note_origin", "origin", "where"]


class UnavailableError(OSError):
    """A data set is neither in the data directory nor to be had from any of its sources."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set of 8-bit images.

    Args:
        name: as in `gateon data list`.
        train_x, test_x: images (N, C, H, W), uint8.
        train_y, test_y: labels (N), uint8.
        classes: how many there are.
        source: name, from, sha256 of the arrays, licence, embedded; for people, a note where there
            is something to say.
    """

    name: str
    train_x: NDArray[np.uint8]
    train_y: NDArray[np.uint8]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.uint8]
    classes: int
    source: dict[str, Any]


def where() -> Path:
    """The data directory: GATEON_DATA, or `gateon` in the user's cache directory."""
    if chosen := os.environ.get("GATEON_DATA"):
        check_utf8(chosen)
        path = Path(chosen).expanduser()
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(
                f"GATEON_DATA names {path}, which is a file: set it to a directory."
            )
        return path
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "gateon"
    variable, default = (
        ("LOCALAPPDATA", "AppData/Local")
        if sys.platform == "win32"
        else ("XDG_CACHE_HOME", ".cache")
    )
    cache = Path(os.environ.get(variable, ""))
    return (cache if cache.is_absolute() else home / default) / "gateon"


def digest(array: NDArray[np.uint8]) -> str:
    """The sha256 of an array's numbers in order.

    >>> digest(np.array([[1, 2], [3, 4]], np.uint8))[:16]
    '9f64a747e1b97f13'
    """
    return sha256(np.ascontiguousarray(array).data).hexdigest()


def note_origin(directory: Path, address: str) -> Path:
    """Write where fetched files came from beside them, so that later runs can still say so."""
    file = directory / "source.json"
    file.write_text(json.dumps({"from": address}))
    return file


def origin(directory: Path) -> str:
    """Where the files of a directory came from, as far as it is known."""
    try:
        return str(json.loads((directory / "source.json").read_text())["from"])
    except (OSError, ValueError, KeyError, TypeError):
        return "files found in the data directory"


Attempt = Callable[[Path, Progress | None], None]


def bring(
    what: str, directory: Path, attempts: Sequence[Attempt], progress: Progress | None, advice: str
) -> None:
    """Try one source after another, each in a workplace of its own, until one has settled its files in `directory`."""
    reasons = []
    for attempt in attempts:
        try:
            with workplace(directory) as place:
                return attempt(place, progress)
        except (
            SourceError,
            ValueError,
        ) as error:  # ValueError: it came, and is not what it should be
            reasons.append(str(error).rstrip("."))
    raise UnavailableError(
        f"{what} is not in {directory} and could not be fetched ({'; '.join(reasons)}): {advice}."
    )
