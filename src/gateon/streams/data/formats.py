"""Official file formats to arrays and rows. Nothing in a file is ever run; a bad file is a ValueError that names it."""

import bz2
import gzip
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

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
_OPENERS: dict[str, Callable[[Path, str], Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError, MemoryError)
LARGEST = 1 << 30  # bytes of a file once unpacked: a small archive may hold any amount of zeros
LONGEST = 1 << 24  # bytes of a JSON line
ROW = 128  # bytes that a row takes in memory besides its content


class TooLargeError(ValueError):
    """A file would take more memory than it may."""

    def __init__(self, path: Path, largest: int | None = None) -> None:
        most = (LARGEST if largest is None else largest) / (1 << 30)
        super().__init__(
            f"{path} holds more than {most:g} GB once it is unpacked: raise --data-limit (largest= in Python) to read it."
        )


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file, unpacked; what is broken in it is told in a sentence."""
    try:
        with cast(BinaryIO, _OPENERS.get(path.suffix, open)(path, "rb")) as file:
            yield file
    except _BROKEN as error:
        if (
            isinstance(error, OSError) and error.errno is not None
        ):  # the system's, and none of the file's
            raise
        raise ValueError(f"{path} is truncated or not a {path.suffix} file ({error}).") from error


def _content(path: Path) -> bytes:
    with _opened(path) as file:
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
    with _opened(path) as file:
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


def json_lines(path: Path | str, largest: int | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a JSON lines file (also .gz, .xz, .bz2), one object a line; of an endless one no more than is allowed.

    Args:
        path: the file.
        largest: bytes it may have once unpacked, each row counting with what it takes in memory
            besides; None for a gigabyte.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "reviews.jsonl"
    >>> _ = file.write_text('{"task": "books", "split": "train", "text": "A joy.", "label": 1}')
    >>> [row["text"] for row in json_lines(file)]
    ['A joy.']
    """
    path, left = Path(path), LARGEST if largest is None else largest
    with _opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST + 1), b""), 1):
            left -= len(line) + ROW
            if left < 0:
                raise TooLargeError(path, largest)
            if len(line) > LONGEST:
                raise ValueError(
                    f"Line {number} of {path} is longer than {LONGEST} bytes: break it up."
                )
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"Line {number} of {path} is not JSON: {error}.") from error
            if not isinstance(row, dict):
                raise ValueError(f"Line {number} of {path} is not a JSON object.")
            yield row
