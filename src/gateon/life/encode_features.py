r"""Features: numbers scaled, categories as one-hot vectors, missing values marked.

A number x becomes (x - mean) / std and a mark that is 1 where x is missing, which then counts as
the mean. A category becomes a place for each word of the first task, one for words that are new
and one for missing values. Mean, deviation and words are those of the first task's training rows.

Later tasks may have other columns: those that are missing count as missing values, new ones are not
used, and both are reported. Data that share no column with the first task are refused.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .table import Table, is_missing

__all__ = ["FeatureEncoder"]

FARTHEST = 100.0  # standard deviations: a number beyond counts as that far


@dataclass(frozen=True)
class FeatureEncoder:
    """Numbers and categories to rows of float32.

    Args:
        numbers: mean and standard deviation of each column of numbers.
        categories: the words of each column of categories, the most frequent first.
    """

    numbers: dict[str, tuple[float, float]]
    categories: dict[str, list[str]]

    @classmethod
    def fit(cls, table: Table, inputs: Sequence[str], rows: NDArray[np.int64]) -> "FeatureEncoder":
        """Take means, deviations and categories from some rows."""
        numbers: dict[str, tuple[float, float]] = {}
        categories: dict[str, list[str]] = {}
        for name in inputs:
            column = table.numbers(name)
            if column is None:
                words = [word for word in _words(table, name, rows) if word is not None]
                counted = Counter(words)
                categories[name] = sorted(counted, key=lambda word: (-counted[word], word))
            else:
                numbers[name] = _mean_and_deviation(column[rows], name, table.origin)
        return cls(numbers, categories)

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return 2 * len(self.numbers) + sum(len(words) + 2 for words in self.categories.values())

    def encode(
        self, table: Table, inputs: Sequence[str], rows: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float32], list[str]]:
        """Rows as numbers, (N, width), and sentences about what did not fit.

        >>> sky = np.array(["blue", "grey"], object)
        >>> table = Table({"heat": np.array([1, 3]), "sky": sky}, "first")
        >>> encoder = FeatureEncoder.fit(table, ["heat", "sky"], np.arange(2))
        >>> later = Table({"heat": np.array([np.nan]), "sky": np.array(["red"], object)}, "later")
        >>> values, sentences = encoder.encode(later, ["heat", "sky"])
        >>> values
        array([[0., 1., 0., 0., 1., 0.]], dtype=float32)
        >>> sentences
        ["1 cell of column 'sky' is new: 'red'."]
        """
        chosen = np.arange(table.rows) if rows is None else rows
        known = [*self.numbers, *self.categories]
        absent = [name for name in known if name not in table.columns]
        if len(absent) == len(known):
            raise ValueError(
                f"{table.origin} has none of the columns that the model learned "
                f"({', '.join(map(repr, known[:8]))}): name its columns like these."
            )
        sentences = []
        if absent:
            sentences.append(f"Missing and filled in with means: {', '.join(map(repr, absent))}.")
        if new := [name for name in inputs if name not in known]:
            sentences.append(f"New since the first task and not used: {', '.join(map(repr, new))}.")
        values = np.zeros((len(chosen), self.width), np.float32)
        place = 0
        for name, scale in self.numbers.items():
            values[:, place : place + 2] = _scaled(table, name, scale, chosen, sentences)
            place += 2
        for name, words in self.categories.items():
            found = _one_hot(table, name, words, chosen, sentences)
            values[np.arange(len(chosen)), place + found] = 1
            place += len(words) + 2
        return values, sentences

    def state(self) -> dict[str, Any]:
        """What is kept, as JSON."""
        numbers = {name: list(scale) for name, scale in self.numbers.items()}
        return {"kind": "features", "numbers": numbers, "categories": self.categories}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "FeatureEncoder":
        """The encoder of this state."""
        numbers = {name: (float(m), float(d)) for name, (m, d) in state["numbers"].items()}
        return cls(numbers, {name: list(words) for name, words in state["categories"].items()})


def _mean_and_deviation(column: NDArray[np.float64], name: str, origin: str) -> tuple[float, float]:
    known = column[~np.isnan(column)]
    if not len(known):
        return 0.0, 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(known.mean()), float(known.std())
    if not np.isfinite([mean, deviation]).all():
        raise ValueError(
            f"Column {name!r} of {origin} has numbers too large to scale: divide them."
        )
    return mean, deviation or 1.0


def _words(table: Table, name: str, rows: NDArray[np.int64]) -> list[str | None]:
    words = table.words(name)
    return [None if is_missing(words[row]) else str(words[row]).strip() for row in rows]


def _scaled(
    table: Table,
    name: str,
    scale: tuple[float, float],
    rows: NDArray[np.int64],
    sentences: list[str],
) -> NDArray[np.float64]:
    """The scaled numbers, and the marks of those that are missing, (N, 2)."""
    missing = np.array([0.0, 1.0])
    if name not in table.columns:
        return np.tile(missing, (len(rows), 1))
    column = table.numbers(name)
    if column is None:
        cell = next(w for w in table.words(name) if not is_missing(w) and not _is_number(table, w))
        raise ValueError(
            f"Column {name!r} held numbers when the model learned it, and holds {cell!r} in "
            f"{table.origin}: give numbers, or leave the cell empty."
        )
    mean, deviation = scale
    with np.errstate(over="ignore"):
        scaled = (column[rows] - mean) / deviation
    if far := int((np.abs(scaled) > FARTHEST).sum()):
        cells = "cell" if far == 1 else "cells"
        sentences.append(
            f"{far:,} {cells} of column {name!r} beyond {FARTHEST:g} standard deviations from the "
            f"mean: taken as {FARTHEST:g}."
        )
    marks = np.isnan(scaled)
    clipped = np.clip(np.where(marks, 0, scaled), -FARTHEST, FARTHEST)
    return np.stack([clipped, marks], axis=1)


def _is_number(table: Table, word: str | None) -> bool:
    return Table({"word": np.array([word], object)}, table.origin).numbers("word") is not None


def _one_hot(
    table: Table, name: str, words: list[str], rows: NDArray[np.int64], sentences: list[str]
) -> NDArray[np.int64]:
    """Which place of the vector is 1: that of the word, of new words, or of missing values."""
    other, missing = len(words), len(words) + 1
    if name not in table.columns:
        return np.full(len(rows), missing)
    places = {word: place for place, word in enumerate(words)}
    cells = _words(table, name, rows)
    new = [cell for cell in cells if cell is not None and cell not in places]
    if new:
        cells_are = "cell of" if len(new) == 1 else "cells of"
        verb = "is" if len(new) == 1 else "are"
        some = ", ".join(map(repr, sorted(set(new))[:3]))
        sentences.append(f"{len(new):,} {cells_are} column {name!r} {verb} new: {some}.")
    return np.array(
        [missing if cell is None else places.get(cell, other) for cell in cells], np.int64
    )
