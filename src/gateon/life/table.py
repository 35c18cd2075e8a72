"""A table: named columns of words, numbers or pictures, and where they came from."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage.bounded import IMAGE_SUFFIXES
from ..storage.files import printable

__all__ = [
    "Column",
    "Table",
    "column_of",
    "columns_of",
    "is_image_path",
    "is_missing",
    "joined",
    "made_table",
]

Column = NDArray[Any]
"""One of three kinds, all of as many rows:

- words: objects, each a str, or None where missing; pictures of Pillow are kept this way;
- numbers: int64, float64 (NaN where missing) or bool;
- pixels: (N, H, W) or (N, C, H, W).
"""
MISSING = frozenset(("", "na", "n/a", "nan", "null"))  # how files mark missing values
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WIDEST = 1 << 16  # columns: a table with more is almost surely transposed


@dataclass(frozen=True, eq=False)
class Table:
    """Columns in their order, and where they came from.

    Args:
        columns: by name.
        origin: the path, or what kind of object it was.
        sha256: of the file; empty for objects of Python.
        folder: what paths of images in the table are relative to.
        notes: what reading did that the user should know.
    """

    columns: dict[str, Column]
    origin: str
    sha256: str = ""
    folder: Path | None = None
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def words(self, name: str) -> list[str | None]:
        """A column as words: numbers are written out, whole ones without a point.

        >>> Table({"y": np.array([1.0, 2.5, np.nan])}, "example").words("y")
        ['1', '2.5', None]
        """
        return [_word(cell) for cell in self.columns[name].tolist()]

    def numbers(self, name: str) -> NDArray[np.float64] | None:
        """A column as numbers, NaN where missing; None if a cell is not a number.

        >>> column = np.array(["1", "", "2.5", "NaN"], object)
        >>> Table({"age": column}, "example").numbers("age")
        array([1. , nan, 2.5, nan])
        """
        column = self.columns[name]
        if column.dtype != object:
            return column.astype(np.float64) if column.ndim == 1 else None
        cells = column.tolist()
        found = _all_numbers(cells)
        if found is not None:
            return found
        found = np.full(len(column), np.nan)
        for row, cell in enumerate(cells):
            if is_missing(cell):
                continue
            if not isinstance(cell, str) or not _NUMBER.fullmatch(cell.strip()):
                return None
            found[row] = float(cell)
        return found

    def is_words(self, name: str) -> bool:
        """Whether the column holds words, and some."""
        column = self.columns[name]
        return column.dtype == object and any(isinstance(cell, str) for cell in column.tolist())


def is_missing(cell: Any) -> bool:
    """Whether a cell marks a missing value: empty, NA, N/A, NaN or null, however written."""
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING)


def made_table(
    columns: dict[str, Column],
    origin: str,
    sha256: str = "",
    folder: Path | None = None,
    notes: tuple[str, ...] = (),
) -> Table:
    """A table whose columns are named, equally long and not empty."""
    if not columns:
        raise ValueError(f"{origin} has no columns: give it a header and rows.")
    if len(columns) > _WIDEST:
        raise ValueError(
            f"{origin} has {len(columns)} columns, more than {_WIDEST}: is it transposed?"
        )
    for number, name in enumerate(columns, 1):
        if not name:
            raise ValueError(f"Column {number} of {origin} has no name: name it in the header.")
        if not name.isprintable():
            raise ValueError(
                f"Column {printable(name)!r} of {origin} has control characters in its name: "
                "rename it."
            )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        (one, first), *others = lengths.items()
        other, second = next(pair for pair in others if pair[1] != first)
        raise ValueError(
            f"Columns {one!r} and {other!r} of {origin} differ in length, {first} and {second}: "
            "make them alike."
        )
    if not next(iter(lengths.values())):
        raise ValueError(f"{origin} has columns but no rows: give it some.")
    return Table(columns, origin, sha256, folder, notes)


def columns_of(name: str, values: Sequence[Any] | NDArray[Any], origin: str) -> dict[str, Column]:
    """The columns that a named list or array makes.

    Lists of numbers of equal length become a column for each place: name0, name1, ... Arrays of two
    or three dimensions a row are pixels.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return _from_array(name, values, origin)
    cells = [_plain(cell) for cell in values]
    known = [cell for cell in cells if cell is not None]
    if not any(isinstance(cell, list | tuple | np.ndarray) for cell in known):
        return {name: column_of(name, cells, origin)}
    try:
        stacked = np.array([np.asarray(cell) for cell in cells])
    except ValueError:  # no common shape
        stacked = np.empty(0, object)
    if stacked.dtype.kind not in "biuf" or stacked.ndim < 2:
        raise ValueError(
            f"Column {name!r} of {origin} has lists that are no numbers or not all of one shape: "
            "give each row as many numbers as the others."
        )
    return _from_array(name, stacked, origin)


def column_of(name: str, values: Iterable[Any], origin: str) -> Column:
    """A column of one kind, words or numbers; of several kinds it is refused.

    >>> column_of("age", [3, None, 4.5], "example")
    array([3. , nan, 4.5])
    >>> column_of("age", [3, "four"], "x")
    Traceback (most recent call last):
    ...
    ValueError: Column 'age' of x has numbers and words in it (row 2): make it one or the other.
    """
    cells = [_plain(cell) for cell in values]
    kinds = [_kind(cell, name, row, origin) for row, cell in enumerate(cells, 1)]
    found = [kind for kind in dict.fromkeys(kinds) if kind]
    if len(found) > 1:
        row = kinds.index(found[1]) + 1
        raise ValueError(
            f"Column {name!r} of {origin} has {found[0]} and {found[1]} in it (row {row}): "
            "make it one or the other."
        )
    if found == ["numbers"]:
        if None not in cells and all(type(cell) is bool for cell in cells):
            return np.array(cells, np.bool_)
        if all(type(cell) is int and abs(cell) < 1 << 53 for cell in cells):
            return np.array(cells, np.int64)
        if any(type(cell) is int and abs(cell) >= 1 << 53 for cell in cells):
            cells = [None if cell is None else _word(cell) for cell in cells]  # no digit is lost
        else:
            return np.array([math.nan if cell is None else float(cell) for cell in cells])
    column = np.empty(len(cells), object)
    column[:] = cells
    return column


def joined(parts: dict[str, Table], name: str, origin: str) -> Table:
    """Concatenate tables, with a column that says which one a row came from."""
    if len({table.folder for table in parts.values()}) > 1:
        parts = {part: _with_whole_paths(table) for part, table in parts.items()}
    first_name, first = next(iter(parts.items()))
    for other_name, other in parts.items():
        if set(other.columns) != set(first.columns):
            differing = sorted(set(other.columns) ^ set(first.columns))
            raise ValueError(
                f"The {name}s {first_name!r} and {other_name!r} of {origin} differ in their "
                f"columns ({', '.join(differing)}): make them alike."
            )
    columns = {}
    for column in first.columns:
        pieces = [table.columns[column] for table in parts.values()]
        if len({piece.shape[1:] for piece in pieces}) > 1 or (
            len({piece.dtype == object for piece in pieces}) > 1
        ):
            raise ValueError(
                f"Column {column!r} of {origin} differs in kind between {name}s: make them alike."
            )
        columns[column] = np.concatenate(pieces)
    which = np.array([part for part, table in parts.items() for _ in range(table.rows)], object)
    notes = tuple(dict.fromkeys(note for table in parts.values() for note in table.notes))
    digests = {part: table.sha256 for part, table in parts.items()}
    digest = first.sha256
    if len(set(digests.values())) > 1:
        digest = sha256(repr(sorted(digests.items())).encode()).hexdigest()
    return Table(columns | {name: which}, origin, digest, first.folder, notes)


def _with_whole_paths(table: Table) -> Table:
    """The table with its paths of images no longer relative to its folder."""
    folder = table.folder or Path()
    columns = {}
    for name, column in table.columns.items():
        cells = column.tolist()
        if column.dtype == object and all(is_image_path(cell) for cell in cells):
            column = np.array([str(folder / cell) for cell in cells], object)
        columns[name] = column
    return replace(table, columns=columns, folder=None)


def is_image_path(cell: Any) -> bool:
    """Whether a cell is a word that ends like the name of an image file."""
    return isinstance(cell, str) and PurePath(cell).suffix.lower() in IMAGE_SUFFIXES


def _all_numbers(cells: list[Any]) -> NDArray[np.float64] | None:
    """The usual column, with nothing missing, without looking at each cell."""
    try:
        found = np.array([float(cell) for cell in cells])
    except (TypeError, ValueError):
        return None
    plain = np.isfinite(found).all() and not any("_" in str(cell) for cell in cells)
    return found if plain else None


def _from_array(name: str, array: NDArray[Any], origin: str) -> dict[str, Column]:
    if array.ndim == 1:
        return {name: column_of(name, array.tolist(), origin)}
    if array.ndim == 2:
        if array.shape[1] > _WIDEST:
            raise ValueError(f"{name} of {origin} has {array.shape[1]} columns: is it transposed?")
        numbers = array.astype(np.float64)
        return {f"{name}{place}": numbers[:, place] for place in range(array.shape[1])}
    if array.ndim == 4 and array.shape[3] in (1, 3) and array.shape[1] not in (1, 3):
        array = array.transpose(0, 3, 1, 2)  # channels last
    if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[1] not in (1, 3)):
        shapes = "(N,), (N, F), (N, H, W), (N, 1 or 3, H, W) or (N, H, W, 1 or 3)"
        raise ValueError(f"{name} of {origin} has shape {array.shape}: give {shapes}.")
    if not array.size:
        raise ValueError(f"{name} of {origin} has no numbers, its shape is {array.shape}.")
    return {name: array}


def _plain(cell: Any) -> Any:
    """A cell as a plain Python value; None if missing."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if hasattr(cell, "detach"):  # a tensor
        cell = cell.detach().cpu().numpy()
        cell = cell.item() if cell.ndim == 0 else cell
    if isinstance(cell, Decimal):
        cell = float(cell)
    if isinstance(cell, float) and math.isnan(cell):
        return None
    if type(cell).__name__ in ("NAType", "NaTType"):  # how pandas says it
        return None
    if isinstance(cell, date | time):
        return cell.isoformat()
    if isinstance(cell, Path | timedelta):
        return str(cell)
    return cell


def _kind(cell: Any, name: str, row: int, origin: str) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return "words"
    if isinstance(cell, int | float):
        return "numbers"
    if hasattr(cell, "convert") and hasattr(cell, "size"):
        return "pictures"
    raise ValueError(
        f"Row {row} of column {name!r} of {origin} holds a {type(cell).__name__}: "
        "give words or numbers."
    )


def _word(cell: Any) -> str | None:
    if isinstance(cell, float):
        if math.isnan(cell):
            return None
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1 << 53 else repr(cell)
    return None if cell is None else str(cell)
