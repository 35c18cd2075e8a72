"""What a data set of images is once it is read, and where its files came from."""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dataset", "digest", "note_origin", "origin"]


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
