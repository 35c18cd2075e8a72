"""Official file formats to arrays and rows. Nothing in a file is ever run; a bad file is a ValueError that names it."""

import gzip
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...storage.bounded import LARGEST, TooLargeError, json_lines, open_unpacked

__all__ = [
    "LARGEST",
    "TooLargeError",
    "json_lines",
    "read_cifar100_binary",
    "read_idx",
    "write_idx",
]

Bytes = NDArray[np.uint8]


def _content(path: Path) -> bytes:
    with open_unpacked(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(
            f"{path} holds more than {LARGEST} bytes: it is none of the data sets read here."
        )
    return content


def read_idx(path: Path) -> Bytes:
    """The array of 8-bit numbers in an idx file, gz or not: 0, 0, type 8, dimensions, sizes (big-endian), numbers.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "labels-idx1-ubyte.gz"
    >>> write_idx(file, np.array([5, 0, 4], np.uint8))
    >>> read_idx(file)
    array([5, 0, 4], dtype=uint8)
    """
    with open_unpacked(path) as file:
        head = file.read(4)
        if len(head) < 4 or head[:3] != b"\0\0\x08" or head[3] > 32:
            raise ValueError(f"{path} is not an idx file of 8-bit numbers.")
        sizes = file.read(4 * head[3])
        shape = [int.from_bytes(sizes[at : at + 4], "big") for at in range(0, 4 * head[3], 4)]
        content = file.read(min(prod(shape), LARGEST) + 1)
    if len(sizes) != 4 * head[3] or len(content) != prod(shape):
        raise ValueError(
            f"{path} is truncated: it announces {shape} numbers and holds {len(content)}."
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def write_idx(path: Path, array: Bytes) -> None:
    """Write an array as idx, gz if the name says so; the same array gives the same bytes."""
    content = (
        bytes([0, 0, 8, array.ndim])
        + b"".join(size.to_bytes(4, "big") for size in array.shape)
        + array.tobytes()
    )
    path.write_bytes(
        gzip.compress(content, compresslevel=6, mtime=0) if path.suffix == ".gz" else content
    )


def read_cifar100_binary(path: Path) -> tuple[Bytes, Bytes, Bytes]:
    """Images (N, 3, 32, 32), fine and coarse labels of a file of CIFAR-100's binary version: coarse, fine, pixels."""
    content = np.frombuffer(_content(path), np.uint8)
    if not len(content) or len(content) % 3074:
        raise ValueError(
            f"{path} is truncated or not CIFAR-100's binary version: {len(content)} bytes, no multiple of 3074."
        )
    records = content.reshape(-1, 3074)
    return _checked_cifar100(path, records[:, 2:], records[:, 1], records[:, 0])


def _checked_cifar100(
    path: Path, pixels: Bytes, fine: NDArray[Any], coarse: NDArray[Any]
) -> tuple[Bytes, Bytes, Bytes]:
    for kind, labels, count in (("fine", fine, 100), ("coarse", coarse, 20)):
        if not np.isin(labels, range(count)).all():
            raise ValueError(
                f"{path} is not CIFAR-100: a {kind} label is not one of 0 to {count - 1}."
            )
    return pixels.reshape(-1, 3, 32, 32), fine.astype(np.uint8), coarse.astype(np.uint8)
