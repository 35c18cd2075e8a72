"""Official file formats to arrays and rows. Nothing in a file is ever run; a bad file is a ValueError that names it."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["json_lines", "read_cifar100_binary", "read_cifar100_python", "read_idx", "write_idx"]

Bytes = NDArray[np.uint8]
_OPENERS: dict[str, Callable[[Path, str], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, _OPENERS.get(path.suffix, open)(path, "rb"))


def _content(path: Path) -> bytes:
    try:
        with _open(path) as file:
            return file.read()
    except _BROKEN as error:
        raise ValueError(f"{path} is truncated or not a {path.suffix} file ({error}).") from error


def read_idx(path: Path) -> Bytes:
    """The array of 8-bit numbers in an idx file, gz or not: 0, 0, type 8, dimensions, sizes (big-endian), numbers.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "labels-idx1-ubyte.gz"
    >>> write_idx(file, np.array([5, 0, 4], np.uint8))
    >>> read_idx(file)
    array([5, 0, 4], dtype=uint8)
    """
    content = _content(path)
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is not an idx file of 8-bit numbers.")
    start = 4 + 4 * content[3]
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4)]
    if len(content) != start + int(np.prod(shape, dtype=object)):
        raise ValueError(f"{path} is truncated: it announces {shape} numbers and holds {max(len(content) - start, 0)}.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def write_idx(path: Path, array: Bytes) -> None:
    """Write an array as idx, gz if the name says so; the same array gives the same bytes."""
    content = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content, compresslevel=6, mtime=0) if path.suffix == ".gz" else content)


def read_cifar100_binary(path: Path) -> tuple[Bytes, Bytes, Bytes]:
    """Images (N, 3, 32, 32), fine and coarse labels of a file of CIFAR-100's binary version: coarse, fine, pixels."""
    content = np.frombuffer(_content(path), np.uint8)
    if not len(content) or len(content) % 3074:
        raise ValueError(f"{path} is truncated or not CIFAR-100's binary version: {len(content)} bytes, no multiple of 3074.")
    records = content.reshape(-1, 3074)
    return _checked_cifar100(path, records[:, 2:], records[:, 1], records[:, 0])


def read_cifar100_python(path: Path) -> tuple[Bytes, Bytes, Bytes]:
    """Images (N, 3, 32, 32), fine and coarse labels of a file of CIFAR-100's python version.

    That version is a pickle. It is read by an unpickler that knows plain values and arrays of numbers and nothing else,
    so that no function named in a file can run.
    """
    try:
        held = _NumbersOnly(io.BytesIO(_content(path)), encoding="bytes").load()
        named = {key.decode() if isinstance(key, bytes) else key: value for key, value in held.items()}
        pixels, fine, coarse = named["data"], np.array(named["fine_labels"]), np.array(named["coarse_labels"])
        if pixels.dtype != np.uint8 or pixels.shape != (len(fine), 3072) or coarse.shape != fine.shape or fine.ndim != 1:
            raise ValueError(f"its arrays have shapes {pixels.shape}, {fine.shape} and {coarse.shape}")
    except Exception as error:  # a hostile pickle may raise anything at all
        raise ValueError(f"{path} is not CIFAR-100's python version ({error}).") from error
    return _checked_cifar100(path, pixels, fine, coarse)


def _checked_cifar100(path: Path, pixels: Bytes, fine: NDArray[Any], coarse: NDArray[Any]) -> tuple[Bytes, Bytes, Bytes]:
    for kind, labels, count in (("fine", fine, 100), ("coarse", coarse, 20)):
        if not np.isin(labels, range(count)).all():
            raise ValueError(f"{path} is not CIFAR-100: a {kind} label is not one of 0 to {count - 1}.")
    return pixels.reshape(-1, 3, 32, 32), fine.astype(np.uint8), coarse.astype(np.uint8)


def _empty_array(*_: object) -> NDArray[Any]:
    return np.empty(0, np.uint8)  # the pickle then sets its shape, type and bytes, which numpy checks


def _number_type(name: str | bytes, *_: object) -> np.dtype[Any]:
    text = name.decode() if isinstance(name, bytes) else name
    if text not in {f"{kind}{size}" for kind in "iuf" for size in (1, 2, 4, 8)} - {"f1"}:
        raise pickle.UnpicklingError(f"it holds an array of {text!r}")
    return np.dtype(text, copy=True)


class _NumbersOnly(pickle.Unpickler):
    """Plain values need no name; the names a pickled array uses get harmless meanings; all others are refused."""

    _MEANING: dict[tuple[str, str], object] = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _empty_array,
        ("numpy._core.multiarray", "_reconstruct"): _empty_array,
        ("numpy", "ndarray"): None,
        ("numpy", "dtype"): _number_type,
    }

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in self._MEANING:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not admitted")
        return self._MEANING[module, name]


def json_lines(path: Path | str) -> Iterator[dict[str, Any]]:
    """The rows of a JSON lines file (also .gz, .xz, .bz2), one object a line.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "reviews.jsonl"
    >>> _ = file.write_text('{"task": "books", "split": "train", "text": "A joy.", "label": 1}')
    >>> [row["text"] for row in json_lines(file)]
    ['A joy.']
    """
    path = Path(path)
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise ValueError(f"Line {number} of {path} is not JSON: {error}.") from error
                if not isinstance(row, dict):
                    raise ValueError(f"Line {number} of {path} is not a JSON object.")
                yield row
    except _BROKEN as error:
        raise ValueError(f"{path} is truncated or not a {path.suffix} file ({error}).") from error
