"""Official file formats to arrays and rows. Nothing in a file is ever run; a bad file is a ValueError that names it."""

import gzip
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...storage.bounded import LARGEST, TooLargeError, json_lines, open_unpacked
from .pickled import read_pickled

__all__ = [
    "LARGEST",
    "TooLargeError",
    "json_lines",
    "read_cifar100_binary",
    "read_cifar100_python",
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


def read_cifar100_python(path: Path) -> tuple[Bytes, Bytes, Bytes]:
    """Images (N, 3, 32, 32), fine and coarse labels of a file of CIFAR-100's python version.

    That version is a pickle. It is read by an unpickler that knows plain values and arrays of
    numbers and nothing else, so that no function named in a file can run.
    """
    content = _content(path)
    try:
        named = {
            key.decode() if isinstance(key, bytes) else key: value
            for key, value in read_pickled(content).items()
        }
        pixels, fine, coarse = (
            named["data"],
            _labels(named["fine_labels"]),
            _labels(named["coarse_labels"]),
        )
        if (
            pixels.dtype != np.uint8
            or pixels.shape != (len(fine), 3072)
            or coarse.shape != fine.shape
            or fine.ndim != 1
        ):
            raise ValueError(
                f"its arrays have shapes {pixels.shape}, {fine.shape} and {coarse.shape}"
            )
    except Exception as error:  # a hostile pickle may raise anything at all
        raise ValueError(f"{path} is not CIFAR-100's python version ({error}).") from error
    return _checked_cifar100(path, pixels, fine, coarse)


def _labels(held: Any) -> NDArray[np.int64]:
    if not isinstance(held, list) or any(
        type(label) is not int for label in held
    ):  # lists in lists could stand for any amount
        raise ValueError("its labels are no list of whole numbers")
    return np.array(held, np.int64)


def _checked_cifar100(
    path: Path, pixels: Bytes, fine: NDArray[Any], coarse: NDArray[Any]
) -> tuple[Bytes, Bytes, Bytes]:
    for kind, labels, count in (("fine", fine, 100), ("coarse", coarse, 20)):
        if not np.isin(labels, range(count)).all():
            raise ValueError(
                f"{path} is not CIFAR-100: a {kind} label is not one of 0 to {count - 1}."
            )
    return pixels.reshape(-1, 3, 32, 32), fine.astype(np.uint8), coarse.astype(np.uint8)
