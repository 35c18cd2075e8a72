"""What a table says: which columns are read, which rows belong to which part, label and task."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage.files import printable
from .columns import Columns, Kind
from .doubts import doubts
from .keys import row_keys
from .parts import PARTS, part_of
from .table import Table, is_missing

__all__ = ["Kind", "Understanding", "understand"]

Rows = NDArray[np.int64]

MOST_LABELS = 10_000
LONGEST_NAME = 200  # characters of a label or a task


@dataclass(frozen=True, eq=False)
class Understanding:
    """What the columns of a table are, and which rows are used for what.

    Args:
        kind: texts, images or features.
        inputs: the columns a network sees: one or two of texts, one of images, or the features.
        label: the column of labels; None where there is none.
        split: the column that says the part, if any.
        task: the column that says the task, if any.
        names: every row's label, None where there is none.
        keys: the key of each row, for `hold_out`; none where labels are not needed.
        parts: the rows of each part; all are in train where nothing says.
        tasks: the rows of each task; empty where no column says.
        reasons: what was decided, and why.
        warnings: what the user should look at.
    """

    kind: Kind
    inputs: tuple[str, ...]
    label: str | None
    split: str | None
    task: str | None
    names: NDArray[Any]
    keys: list[bytes]
    parts: dict[str, Rows]
    tasks: dict[str, Rows]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def labels(self) -> list[str]:
        """The labels there are, sorted."""
        used = self.names[np.concatenate(list(self.parts.values()))]
        return sorted({name for name in used if name is not None})

    @property
    def columns(self) -> dict[str, Any]:
        """Which columns were taken, as JSON: what `understand(..., like=...)` takes."""
        chosen = {"kind": self.kind, "inputs": list(self.inputs), "label": self.label}
        return chosen | {"split": self.split, "task": self.task}


def understand(
    table: Table,
    text: str | None = None,
    second: str | None = None,
    label: str | None = None,
    image: str | None = None,
    split: str | None = None,
    task: str | None = None,
    labelled: bool = True,
    like: Mapping[str, Any] | None = None,
) -> Understanding:
    """Decide what the columns of a table are, by the rules of `columns`.

    Args:
        table: as `read` gives it.
        text: the column of texts.
        second: the column of second texts.
        label: the column of labels.
        image: the column of images.
        split: the column that says train, validation or test.
        task: the column that says the task.
        labelled: whether labels are needed; if not, no row is left out.
        like: the `columns` of data learned before: their names are tried first, and data of
            another kind are refused.

    >>> table = Table({"message": np.array(["my card was stolen", "where is my bag"], object),
    ...                "intent": np.array(["card", "luggage"], object)}, "example")
    >>> found = understand(table)
    >>> found.kind, found.inputs, found.label, found.labels
    ('texts', ('message',), 'intent', ['card', 'luggage'])
    """
    named = {"text": text, "second": second, "label": label, "image": image}
    named |= {"split": split, "task": task}
    chosen = Columns(table, {use: name for use, name in named.items() if name}, like or {})
    kind, inputs = chosen.decide(labelled)
    if like and like["kind"] != kind:
        raise ValueError(
            f"The model learned {like['kind']}, and {table.origin} holds {kind}: "
            "give it data of the same kind, or begin a new model."
        )
    names = _names(table, chosen.label, "label") if chosen.label else _nothing(table)
    used = np.ones(table.rows, np.bool_)
    warnings = [*table.notes, *chosen.warnings]
    if labelled:
        used, left_out = _usable(table, kind, inputs, names)
        warnings += left_out
    if kind == "images":
        _check_images(table, inputs[0])
    tasks = _tasks(table, chosen.task, used)
    parts = _parts(table, chosen.split, used, labelled)
    keys = row_keys(table, inputs, files=kind == "images") if labelled else []
    found = Understanding(
        kind,
        inputs,
        chosen.label,
        chosen.split,
        chosen.task,
        names,
        keys,
        parts,
        tasks,
        tuple(chosen.reasons),
        (),
    )
    if labelled:
        _check_labels(table, found)
        warnings += doubts(table, kind, inputs, keys, names, parts)
    return Understanding(**(vars(found) | {"warnings": tuple(warnings)}))


def _nothing(table: Table) -> NDArray[Any]:
    return np.full(table.rows, None, object)


def _names(table: Table, column: str, use: str) -> NDArray[Any]:
    """Labels or tasks as names, None where there is none."""
    words = table.words(column)
    made: dict[str | None, str | None] = {}
    for word in set(words):
        if is_missing(word):
            made[word] = None
            continue
        name = unicodedata.normalize("NFC", str(word)).strip()
        if not name.isprintable():
            raise ValueError(
                f"The {use} {printable(name)!r} in column {column!r} of {table.origin} has control "
                "characters: rename it."
            )
        if len(name) > LONGEST_NAME:
            raise ValueError(
                f"A {use} in column {column!r} of {table.origin} has {len(name):,} characters, "
                f"more than {LONGEST_NAME}: name another column with --{use}, or shorten it."
            )
        made[word] = name
    names = np.empty(len(words), object)
    names[:] = [made[word] for word in words]
    return names


def _usable(
    table: Table, kind: Kind, inputs: tuple[str, ...], names: NDArray[Any]
) -> tuple[NDArray[np.bool_], list[str]]:
    """Which rows can be learned, and words about those that cannot."""
    unlabelled = np.array([name is None for name in names])
    if unlabelled.all():
        raise ValueError(f"No row of {table.origin} has a label: fill in the column of labels.")
    empty = np.zeros(table.rows, np.bool_)
    if kind != "features" and table.columns[inputs[0]].ndim == 1:
        cells = table.columns[inputs[0]].tolist()
        empty = np.array(
            [cell is None or (isinstance(cell, str) and not cell.strip()) for cell in cells]
        )
    if (unlabelled | empty).all():
        raise ValueError(f"Every row of {table.origin} lacks its {kind[:-1]} or its label.")
    words = []
    for count, what in ((unlabelled.sum(), "label"), ((empty & ~unlabelled).sum(), kind[:-1])):
        if count:
            have = "row has" if count == 1 else "rows have"
            words.append(f"{count:,} {have} no {what}: left out.")
    return ~(unlabelled | empty), words


def _tasks(table: Table, column: str | None, used: NDArray[np.bool_]) -> dict[str, Rows]:
    if column is None:
        return {}
    names = _names(table, column, "task")
    without = np.flatnonzero(np.array([name is None for name in names]) & used)
    if len(without):
        raise ValueError(
            f"Row {without[0] + 1} of {table.origin} has no task in column {column!r}: "
            "fill it in, or leave the row out."
        )
    return {
        str(name): np.flatnonzero((names == name) & used)
        for name in dict.fromkeys(names.tolist())
        if ((names == name) & used).any()
    }


def _parts(
    table: Table, column: str | None, used: NDArray[np.bool_], labelled: bool
) -> dict[str, Rows]:
    if column is None:
        return {"train": np.flatnonzero(used)}
    words = table.words(column)
    for row, word in enumerate(words, 1):
        if part_of(word) is None:
            raise ValueError(
                f"Row {row} of {table.origin} has {printable(word or '')!r} in column {column!r}: "
                "use train, validation or test."
            )
    said = np.array([part_of(word) for word in words])
    parts = {part: np.flatnonzero((said == part) & used) for part in PARTS}
    if labelled and not len(parts["train"]):
        raise ValueError(f"No row of {table.origin} is in the train part: give it some to learn.")
    return {part: rows for part, rows in parts.items() if len(rows)}


def _check_labels(table: Table, found: Understanding) -> None:
    labels, column = found.labels, found.label
    rows = sum(len(rows) for rows in found.parts.values())
    numbers = table.numbers(column) if column else None
    advice = "name another column with --label"
    if numbers is not None and len(labels) > 20 and (numbers[~np.isnan(numbers)] % 1).any():
        raise ValueError(
            f"Column {column!r} of {table.origin} holds {len(labels):,} different amounts: classes "
            f"are learned, not amounts; {advice}, or put the amounts into classes."
        )
    if len(labels) == rows and rows > 10:
        raise ValueError(
            f"Every row of {table.origin} has a label of its own in column {column!r}: {advice}."
        )
    if len(labels) > MOST_LABELS:
        raise ValueError(
            f"Column {column!r} of {table.origin} has {len(labels):,} labels, more than "
            f"{MOST_LABELS:,}: {advice}, or put them into fewer classes."
        )


def _check_images(table: Table, name: str) -> None:
    """Refuse paths that lead nowhere, before anything is learned."""
    column = table.columns[name]
    if column.ndim > 1:
        return
    folder = table.folder or Path()
    paths = [folder / cell for cell in column.tolist() if isinstance(cell, str) and cell.strip()]
    if missing := [path for path in paths if not path.is_file()]:
        raise ValueError(
            f"{len(missing):,} of {len(paths):,} images of {table.origin} are not there, the first "
            f"is {missing[0]}: paths are relative to {folder.resolve()}."
        )
