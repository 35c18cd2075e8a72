"""Texts, normalised: what a tokenizer can read, and no longer than it will look at."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .table import Table

__all__ = ["TextEncoder"]

CHARACTERS = 1 << 14  # far more than 512 tokens
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]+")
_HALF = re.compile("[\ud800-\udfff]")  # half a character, which JSON can write and nobody can read


@dataclass(frozen=True)
class TextEncoder:
    """Texts in composed Unicode (NFC), without control characters, cut at so many characters."""

    characters: int = CHARACTERS

    @classmethod
    def fit(cls, table: Table, inputs: Sequence[str], rows: NDArray[np.int64]) -> "TextEncoder":
        """Texts need nothing of the data."""
        return cls()

    def encode(
        self, table: Table, inputs: Sequence[str], rows: NDArray[np.int64] | None = None
    ) -> tuple[list[tuple[str, str | None]], list[str]]:
        r"""Each row as a text and its second one, or None.

        >>> table = Table({"text": np.array([" so\x07 far ", None], object)}, "example")
        >>> TextEncoder().encode(table, ["text"])
        ([('so  far', None), ('', None)], ['1 text is empty.'])
        """
        chosen = np.arange(table.rows) if rows is None else rows
        columns = [self._column(table, name, chosen) for name in inputs]
        first = columns[0]
        second: list[str] | list[None] = columns[1] if len(columns) > 1 else [None] * len(first)
        cut = sum(len(text) >= self.characters for column in columns for text in column)
        empty = sum(not text for text in first)
        words = []
        if cut:
            noun = "text is" if cut == 1 else "texts are"
            words.append(f"{cut:,} {noun} cut at {self.characters:,} characters.")
        if empty:
            words.append(f"{empty:,} {'text is' if empty == 1 else 'texts are'} empty.")
        return list(zip(first, second, strict=True)), words

    def _column(self, table: Table, name: str, rows: NDArray[np.int64]) -> list[str]:
        cells = table.columns[name]
        if cells.ndim > 1:
            raise ValueError(f"Column {name!r} of {table.origin} holds pixels, not texts.")
        return [self._normal(cells[row], name, row, table.origin) for row in rows]

    def _normal(self, cell: Any, name: str, row: int, origin: str) -> str:
        if cell is None:
            return ""
        if not isinstance(cell, str):
            raise ValueError(
                f"Row {row + 1} of column {name!r} of {origin} is {cell}, not a text: give words."
            )
        if _HALF.search(cell):
            raise ValueError(
                f"Row {row + 1} of column {name!r} of {origin} has half a character in it "
                "(a lone surrogate): write the text anew."
            )
        # What is cut off is never looked at: normalising can only make a text three times longer.
        text = unicodedata.normalize("NFC", cell[: 2 * self.characters])
        return _CONTROL.sub(" ", text).strip()[: self.characters]

    def state(self) -> dict[str, Any]:
        """What is kept, as JSON."""
        return {"kind": "texts", "characters": self.characters}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "TextEncoder":
        """The encoder of this state."""
        return cls(int(state["characters"]))
