"""Files of tables: CSV, TSV, JSON lines, Parquet and npz, each read within bounds."""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage import bounded
from ..storage.bounded import (
    IMAGE_SUFFIXES,
    ROW,
    TooLargeError,
    array_bytes,
    array_names,
    json_lines,
    open_arrays,
    open_unpacked,
    read_named_array,
)
from ..storage.files import is_regular
from .table import Column, Table, column_of, columns_of, joined, made_table

__all__ = ["FORMATS", "file_format", "hash_of", "read_file"]

PACKED = (".gz", ".xz", ".bz2")
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
}
FORMATS = "CSV (.csv), TSV (.tsv), JSON lines (.jsonl), Parquet (.parquet) or arrays (.npz)"
DELIMITERS = (",", ";", "\t", "|")
_SNIFFED = 50  # records that decide which delimiter it is


def file_format(path: Path) -> str | None:
    """Which format a file's name says it has; those that are text may be packed as well."""
    inner = path.with_suffix("") if path.suffix.lower() in PACKED else path
    kind = SUFFIXES.get(inner.suffix.lower())
    return None if inner != path and kind in ("parquet", "npz") else kind


def read_file(path: Path, largest: int | None = None) -> Table:
    """Read a file in the format that its name says.

    Args:
        path: the file.
        largest: bytes it may take once unpacked; None for a gigabyte.
    """
    try:
        if not path.exists():
            raise FileNotFoundError(
                f"There is no {path}: give a file or a folder; texts themselves go in a list."
            )
        if not is_regular(path):
            raise ValueError(f"{path} is not a regular file: give {FORMATS}, or a folder.")
        kind = file_format(path)
        if kind is None:
            if path.suffix.lower() in IMAGE_SUFFIXES:
                cells = {"image": np.array([path.name], object)}
                return made_table(cells, str(path), hash_of(path), path.parent)
            raise ValueError(f"{path} is not a table that can be read: give {FORMATS}.")
        if path.stat().st_size == 0:
            raise ValueError(f"{path} is empty: give it a header and rows.")
        return _READERS[kind](path, largest)
    except (PermissionError, IsADirectoryError) as error:
        raise OSError(
            error.errno, f"{path} cannot be read ({error.strerror}): check its permissions."
        ) from error


def hash_of(path: Path) -> str:
    """The sha256 of a file's bytes."""
    with open(path, "rb") as file:
        digest = sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _text(path: Path, largest: int | None) -> str:
    most = bounded.LARGEST if largest is None else largest
    with open_unpacked(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise TooLargeError(path, largest)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError(f"{path} is in UTF-16: save it as UTF-8.")
    if b"\0" in content:
        line = content[: content.index(b"\0")].count(b"\n") + 1
        raise ValueError(f"{path} has a NUL byte in line {line}: it is damaged, or not a table.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path} is not UTF-8 (byte {content[error.start]:#04x} in line {line}): "
            "save it as UTF-8."
        ) from error
    if not text.strip():
        raise ValueError(f"{path} is empty: give it a header and rows.")
    return text


def _read_csv(path: Path, largest: int | None) -> Table:
    text = _text(path, largest)
    tabs = file_format(path) == "tsv"
    with _cells_of_any_length(len(text)):
        delimiter = "\t" if tabs else _delimiter(text)
        header, rows = _records(text, delimiter, path)
    header, rows, notes = _without_index(header, rows)
    if repeated := [name for name in header if header.count(name) > 1]:
        raise ValueError(f"{path} has two columns {repeated[0]!r}: rename one.")
    if all(name.replace(".", "", 1).lstrip("-").isdigit() for name in header) and header != [
        str(n) for n in range(len(header))
    ]:
        raise ValueError(
            f"The first line of {path} must name the columns, but it holds numbers "
            f"({', '.join(header[:3])}): add a header."
        )
    columns = {}
    for place, name in enumerate(header):
        columns[name] = np.empty(len(rows), object)
        columns[name][:] = [row[place] for row in rows]
    return made_table(columns, str(path), hash_of(path), path.parent, notes)


def _records(text: str, delimiter: str, path: Path) -> tuple[list[str], list[list[str]]]:
    """The header, and the rows, each with as many cells."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    rows: list[list[str]] = []
    try:
        for cells in reader:
            if not cells or (len(cells) == 1 and not cells[0].strip() and len(header) != 1):
                continue  # an empty line
            if not header:
                header = [name.strip() for name in cells]
            elif len(cells) != len(header):
                shown = "tabs" if delimiter == "\t" else f"'{delimiter}'"
                raise ValueError(
                    f"Line {reader.line_num} of {path} has {len(cells)} cells, the header "
                    f"{len(header)}: quote cells that hold {shown}."
                )
            else:
                rows.append(cells)
    except csv.Error as error:
        raise ValueError(
            f"Line {reader.line_num} of {path} is broken ({error}): check its quotes."
        ) from error
    return header, rows


def _without_index(
    header: list[str], rows: list[list[str]]
) -> tuple[list[str], list[list[str]], tuple[str, ...]]:
    """Leave out a first column without a name that counts the rows, as pandas writes one."""
    if (
        len(header) < 2
        or header[0]
        or [row[0] for row in rows] != [str(n) for n in range(len(rows))]
    ):
        return header, rows, ()
    note = "The first column has no name and counts the rows: it is left out."
    return header[1:], [row[1:] for row in rows], (note,)


def _delimiter(text: str) -> str:
    """The delimiter that splits the first records into equally many cells, and the most."""
    best, score = ",", (False, 1)
    for delimiter in DELIMITERS:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            counts = [len(cells) for cells in islice(reader, _SNIFFED) if cells]
        except csv.Error:
            continue
        found = (len(set(counts)) == 1 and counts[0] > 1, counts[0])
        if found > score:
            best, score = delimiter, found
    return best


@contextmanager
def _cells_of_any_length(most: int) -> Iterator[None]:
    """Lift the csv module's limit, which is process-wide, for a while."""
    before = csv.field_size_limit(most + 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _read_json_lines(path: Path, largest: int | None) -> Table:
    rows = _json_list(path, largest) if ".json" in path.suffixes else None
    if rows is None:
        rows = list(json_lines(path, largest))
    if not rows:
        raise ValueError(f"{path} is empty: give it one object per line.")
    names = dict.fromkeys(name for row in rows for name in row)
    columns: dict[str, Column] = {}
    for name in names:
        columns |= columns_of(name, [row.get(name) for row in rows], str(path))
    return made_table(columns, str(path), hash_of(path), path.parent)


def _json_list(path: Path, largest: int | None) -> list[dict[str, Any]] | None:
    """The objects of a .json file that holds one list of them; None if it holds lines."""
    text = _text(path, largest)
    if not text.lstrip().startswith("["):
        return None
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}.") from error
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} holds a list of something else than objects: give one per row.")
    return list(rows)


def _read_parquet(path: Path, largest: int | None) -> Table:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(
            f"Reading {path} needs pyarrow: pip install 'gateon[tables]', or save it as CSV."
        ) from error
    most = bounded.LARGEST if largest is None else largest
    try:
        with ParquetFile(path) as file:
            names = file.schema_arrow.names
            if file.metadata.num_rows * ROW > most:
                raise TooLargeError(path, largest)
            cells: list[list[Any]] = [[] for _ in names]
            taken = 0
            for batch in file.iter_batches(batch_size=1024):
                taken += batch.nbytes + ROW * batch.num_rows
                if taken > most:
                    raise TooLargeError(path, largest)
                for column, values in zip(cells, batch.columns, strict=True):
                    column += values.to_pylist()
    except TooLargeError:
        raise
    except Exception as error:  # a hostile file may raise anything at all
        why = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(f"{path} is damaged or not a Parquet file ({why}).") from error
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{path} has two columns {repeated[0]!r}: rename one.")
    columns: dict[str, Column] = {}
    for name, values in zip(names, cells, strict=True):
        if not name.startswith("__index_level_"):  # as pandas keeps it
            columns |= columns_of(name, values, str(path))
    return made_table(columns, str(path), hash_of(path), path.parent)


def _read_npz(path: Path, largest: int | None) -> Table:
    """Arrays x and y; or x_train, y_train, x_test, ...; or any arrays of as many rows."""
    most = bounded.LARGEST if largest is None else largest
    with open_arrays(path) as archive:
        names = array_names(path)
        if sum(array_bytes(archive, name) for name in names) > most:
            raise TooLargeError(path, largest)
        arrays = {name: read_named_array(archive, name) for name in names}
    parts = {name.removeprefix("x_") for name in names if name.startswith("x_")}
    if parts and all(name[:2] in ("x_", "y_") and name[2:] in parts for name in names):
        tables = {}
        for part in dict.fromkeys(name[2:] for name in names):
            held = {name[0]: arrays[name] for name in (f"x_{part}", f"y_{part}") if name in arrays}
            tables[part] = _from_arrays(held, path)
        return joined(tables, "split", str(path))
    return _from_arrays(arrays, path)


def _from_arrays(arrays: dict[str, NDArray[Any]], path: Path) -> Table:
    columns = {}
    for name, array in arrays.items():
        if array.dtype.kind == "U" and array.ndim == 1:
            columns[name] = column_of(name, array.tolist(), str(path))
        elif array.dtype.kind in "biuf" and array.ndim:
            columns |= columns_of(name, array, str(path))
        else:
            raise ValueError(
                f"Array {name} of {path} is {array.dtype} of shape {array.shape}: "
                "give numbers or words, one row per sample."
            )
    return made_table(columns, str(path), hash_of(path), path.parent)


_READERS = {
    "csv": _read_csv,
    "tsv": _read_csv,
    "jsonl": _read_json_lines,
    "parquet": _read_parquet,
    "npz": _read_npz,
}
