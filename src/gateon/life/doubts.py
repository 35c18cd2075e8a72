"""What in a table makes a model worse than it could be, in sentences."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .table import Table, is_missing

__all__ = ["doubts"]

FEW_ROWS = 50


def doubts(
    table: Table,
    kind: str,
    inputs: Sequence[str],
    keys: Sequence[bytes],
    names: NDArray[Any],
    parts: dict[str, NDArray[np.int64]],
) -> list[str]:
    """Sentences about few rows, few labels, repeated rows, and columns that say nothing.

    Args:
        table: the data.
        kind: texts, images or features.
        inputs: the columns a network sees.
        keys: the key of each row.
        names: every row's label.
        parts: the rows of each part.
    """
    words = [
        *_about_labels(names, parts),
        *_about_repeats(keys, names, parts),
    ]
    if kind == "features":
        for name in inputs:
            if _is_constant(table, name):
                words.append(f"Column {name!r} is the same in every row: it tells nothing.")
    return words


def _is_constant(table: Table, name: str) -> bool:
    numbers = table.numbers(name)
    if numbers is not None:
        return bool(np.nanmin(numbers) == np.nanmax(numbers))
    return len({word for word in table.words(name) if not is_missing(word)}) == 1


def _about_labels(names: NDArray[Any], parts: dict[str, NDArray[np.int64]]) -> list[str]:
    words, train = [], Counter(names[parts["train"]].tolist())
    rows = len(parts["train"])
    if len(train) == 1:
        only = next(iter(train))
        words.append(f"There is one label, {only!r}: nothing can be told apart; add another.")
    if rows < FEW_ROWS:
        are = "row to train on is" if rows == 1 else "rows to train on are"
        words.append(f"{rows} {are} few: results will say little; give 50 or more.")
    if single := sorted(name for name, count in train.items() if count == 1):
        words.append(f"{_shown(single)} in one row only: give each label several.")
    for part in parts:
        if part != "train" and (unseen := sorted(set(names[parts[part]]) - set(train))):
            words.append(f"{_shown(unseen)} in the {part} part only: it cannot be learned.")
    known = [name for name in train if name is not None]
    if all(name.replace(".", "", 1).lstrip("-").isdigit() for name in known):
        some = ", ".join(map(repr, sorted(known)[:3]))
        words.append(f"The labels are numbers: they are kept as names ({some}).")
    folded = defaultdict(list)
    for name in sorted(known):
        folded[name.casefold()].append(name)
    for alike in folded.values():
        if len(alike) > 1:
            words.append(f"Labels {' and '.join(map(repr, alike))} differ in case only.")
    return words


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    verb = "is" if len(names) == 1 else "are"
    noun = "Label" if len(names) == 1 else "Labels"
    return f"{noun} {', '.join(map(repr, names[:5]))}{more} {verb}"


def _about_repeats(
    keys: Sequence[bytes], names: NDArray[Any], parts: dict[str, NDArray[np.int64]]
) -> list[str]:
    words = []
    repeated = sum(len(rows) - len({keys[row] for row in rows}) for rows in parts.values())
    if repeated:
        verb = "row repeats" if repeated == 1 else "rows repeat"
        words.append(f"{repeated:,} {verb} an earlier one of the same part.")
    labels = defaultdict(set)
    for rows in parts.values():
        for row in rows:
            labels[keys[row]].add(names[row])
    if torn := sum(len(each) > 1 for each in labels.values()):
        verb = "input has" if torn == 1 else "inputs have"
        words.append(f"{torn:,} {verb} different labels in different rows: check them.")
    train = {keys[row] for row in parts["train"]}
    for part, rows in parts.items():
        if part != "train" and (again := sum(keys[row] in train for row in rows)):
            words.append(
                f"{again:,} of {len(rows):,} {part} rows are in the train part too: "
                "results on them flatter."
            )
    return words
