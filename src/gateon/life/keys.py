"""What a row is, in a few bytes: equal inputs have equal keys, in every file."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .table import Table
from .table_files import hash_of

__all__ = ["row_keys"]


def row_keys(table: Table, inputs: Sequence[str], files: bool = False) -> list[bytes]:
    """The sha256 of every row's inputs.

    Args:
        table: whose rows.
        inputs: the columns that count.
        files: whether words in them are paths of images: then what is in the files counts.

    >>> example = Table({"text": np.array(["a", "b", "a"], object)}, "example")
    >>> one, other, again = row_keys(example, ["text"])
    >>> one == again, one == other
    (True, False)
    """
    columns = [_files(table, name) if files else _cells(table, name) for name in inputs]
    return [_digest(cells) for cells in zip(*columns, strict=True)]


def _cells(table: Table, name: str) -> Sequence[Any] | NDArray[Any]:
    column = table.columns[name]
    if column.ndim > 1:
        return np.ascontiguousarray(column)
    if (numbers := table.numbers(name)) is not None:  # 1 and 1.0 are the same, in every format
        return [repr(number) for number in numbers.tolist()]
    return list(column)


def _files(table: Table, name: str) -> Sequence[Any]:
    folder = table.folder or Path()
    return [
        hash_of(folder / cell) if isinstance(cell, str) else cell for cell in _cells(table, name)
    ]


def _digest(cells: tuple[Any, ...]) -> bytes:
    digest = sha256()
    for cell in cells:
        if isinstance(cell, str):
            content = b"words" + cell.encode("utf-8", "surrogatepass")
        elif cell is None:
            content = b"nothing"
        elif isinstance(cell, np.ndarray):
            content = f"{cell.dtype.str} {cell.shape}".encode() + cell.tobytes()
        else:  # a picture of Pillow
            content = f"{cell.mode} {cell.size}".encode() + cell.tobytes()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.digest()
