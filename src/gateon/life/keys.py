"""Keys of rows, a few bytes each: equal inputs have equal keys, in every file."""

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
    """The sha256 of every row's inputs; numbers count by their value, 1 like 1.0.

    Args:
        table: whose rows.
        inputs: the columns that count.
        files: whether words in them are paths of images: then the files' content counts.

    >>> example = Table({"text": np.array(["a", "b", "a"], object)}, "example")
    >>> one, other, again = row_keys(example, ["text"])
    >>> one == again, one == other
    (True, False)
    """
    found = {name: table.numbers(name) for name in inputs}
    numbers = [column for column in found.values() if column is not None]
    others = [table.columns[name] for name in inputs if found[name] is None]
    folder = (table.folder or Path()) if files else None
    values = _plain_bytes(np.stack(numbers, axis=1)) if numbers else np.zeros((table.rows, 0))
    return [
        sha256(row.tobytes() + b"".join(_content(cell, folder) for cell in cells)).digest()
        for row, *cells in zip(values, *others, strict=True)
    ]


def _plain_bytes(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers whose bytes are equal where the numbers are: one zero, and one NaN."""
    return np.where(np.isnan(values), np.nan, values + 0.0).astype("<f8")


def _content(cell: Any, folder: Path | None) -> bytes:
    """The bytes of a cell that is no number, with their length before them."""
    if cell is None or (isinstance(cell, str) and not cell):
        content = b"nothing"
    elif isinstance(cell, str):
        words = hash_of(folder / cell) if folder is not None else cell
        content = b"words" + words.encode("utf-8", "surrogatepass")
    elif isinstance(cell, np.ndarray):
        content = f"{cell.dtype.str} {cell.shape}".encode() + cell.tobytes()
    else:  # a picture of Pillow
        content = f"{cell.mode} {cell.size}".encode() + cell.tobytes()
    return len(content).to_bytes(8, "big") + content
