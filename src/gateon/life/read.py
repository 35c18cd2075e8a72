"""Any source to a table: files and folders by their names, objects of Python by what they are."""

from pathlib import Path
from typing import Any

import numpy as np

from .folders import read_folder
from .table import Column, Table, columns_of, joined, made_table
from .table_files import read_file

__all__ = ["read"]


def read(source: Any, largest: int | None = None) -> Table:
    """Read data of any kind.

    Args:
        source: the path of a CSV, TSV, Parquet, JSON lines or npz file, or of a folder; or a frame
            of pandas or polars, a dict of columns, a list of texts, of dicts or of (input, label),
            an array, a pair (x, y), a data set of torch or of Hugging Face; or a dict of any of
            these by part: train, validation, test.
        largest: bytes a file may take once unpacked; None for a gigabyte.

    >>> read((["my card was stolen", "where is my bag"], ["card", "luggage"])).columns["y"]
    array(['card', 'luggage'], dtype=object)
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if path.is_dir():
            return read_folder(path, largest)
        return read_file(path, largest)
    return _read_object(source, largest)


def _read_object(source: Any, largest: int | None) -> Table:
    library = type(source).__module__.partition(".")[0]
    if hasattr(source, "detach"):  # a tensor
        source = source.detach().cpu().numpy()
    if isinstance(source, np.ndarray):
        return _table({"x": source}, "the array")
    if library in ("pandas", "polars"):
        return _read_frame(source, f"the {library} frame")
    if isinstance(source, dict):
        if not source:
            raise ValueError("The dict is empty: give columns by name, or data by part.")
        if all(_is_data(value) for value in source.values()):
            parts = {str(part): read(value, largest) for part, value in source.items()}
            return joined(parts, "split", "the dict of parts")
        return _table(source, "the dict")
    if hasattr(source, "column_names") and hasattr(source, "features"):
        return _read_hugging_face(source)
    if isinstance(source, tuple) and len(source) == 2:
        return _table({"x": source[0], "y": source[1]}, "the pair (x, y)")
    if isinstance(source, list | tuple):
        return _read_rows(list(source), "the list")
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):  # a data set of torch
        table = _read_rows([source[n] for n in range(len(source))], "the data set")
        names = getattr(source, "classes", None)
        return _with_names(table, "y", names) if names else table
    raise TypeError(
        f"Data cannot be read from {type(source).__name__}: give a path, a frame, a list, arrays "
        "or a data set."
    )


def _is_data(value: Any) -> bool:
    """Whether it is a whole source, and not one column."""
    library = type(value).__module__.partition(".")[0]
    return (
        isinstance(value, str | Path | dict | Table)
        or (library in ("pandas", "polars") and hasattr(value, "columns"))
        or hasattr(value, "column_names")
        or (isinstance(value, tuple) and len(value) == 2 and not isinstance(value[0], str))
    )


def _table(columns: dict[Any, Any], origin: str) -> Table:
    made: dict[str, Column] = {}
    for name, values in columns.items():
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise TypeError(
                f"{name} of {origin} is {type(values).__name__}: give a list or an array."
            )
        if hasattr(values, "detach"):
            values = values.detach().cpu().numpy()
        made |= columns_of(str(name), values, origin)
    return made_table(made, origin)


def _read_frame(frame: Any, origin: str) -> Table:
    names = [str(name) for name in frame.columns]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{origin} has two columns {min(repeated)!r}: rename one.")
    columns = [frame[name].to_list() for name in frame.columns]
    return _table(dict(zip(names, columns, strict=True)), origin)


def _read_hugging_face(dataset: Any) -> Table:
    origin = "the Hugging Face data set"
    table = _table({name: list(dataset[name]) for name in dataset.column_names}, origin)
    for name in list(table.columns):
        if names := getattr(dataset.features.get(name), "names", None):
            table = _with_names(table, name, names)
    return table


def _read_rows(rows: list[Any], origin: str) -> Table:
    if not rows:
        raise ValueError(f"{origin} is empty: give it some rows.")
    kinds = {_row_kind(row) for row in rows}
    if len(kinds) > 1:
        raise ValueError(
            f"{origin} has rows of different kinds ({', '.join(sorted(kinds))}): make them alike."
        )
    match kinds.pop():
        case "dicts":
            names = dict.fromkeys(name for row in rows for name in row)
            return _table({name: [row.get(name) for row in rows] for name in names}, origin)
        case "pairs":
            return _table({"x": [row[0] for row in rows], "y": [row[1] for row in rows]}, origin)
        case "texts":
            return _table({"text": rows}, origin)
        case "lists or arrays":
            return _table({"x": rows}, origin)
        case other:
            raise TypeError(
                f"{origin} has rows that are {other}: give texts, dicts, (input, label) or arrays."
            )


def _row_kind(row: Any) -> str:
    if isinstance(row, str):
        return "texts"
    if isinstance(row, dict):
        return "dicts"
    if isinstance(row, tuple) and len(row) == 2:
        return "pairs"
    if isinstance(row, list | np.ndarray) or hasattr(row, "detach") or hasattr(row, "convert"):
        return "lists or arrays"
    return type(row).__name__


def _with_names(table: Table, column: str, names: list[str]) -> Table:
    """Labels that are numbers by the names that the data set gives them."""
    if column not in table.columns or table.columns[column].dtype != np.int64:
        return table
    numbers = table.columns[column].tolist()
    if any(number >= len(names) for number in numbers):
        raise ValueError(
            f"Column {column!r} of {table.origin} holds label {max(numbers)}, but names are given "
            f"for {len(names)}: make them agree."
        )
    found = [None if number < 0 else str(names[number]) for number in numbers]
    return made_table(table.columns | {column: np.array(found, object)}, table.origin)
