"""Tables that lose no column on a narrow terminal: what does not fit beside goes below."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..storage.files import printable

__all__ = ["fitted"]

GAP = 2  # columns between two


def fitted(
    titles: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, left: int = 1
) -> Group:
    """A table, or several below each other, each with the first column.

    Args:
        titles: of the columns.
        rows: their cells; names may hold anything.
        width: of the terminal.
        left: how many columns, the first ones, are aligned to the left.

    >>> from rich.console import Console
    >>> Console(width=16).print(fitted(["of", "first", "second"], [["a", "1", "2"]], 16))
    of  first
    a       1
    <BLANKLINE>
    of  second
    a        2
    """
    shown = [[printable(cell) for cell in row] for row in rows]
    wide = [
        max(cell_len(cell) for cell in (title, *(row[n] for row in shown)))
        for n, title in enumerate(titles)
    ]
    tables: list[Table | str] = []
    for columns in _blocks(wide, width):
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
        for n in columns:
            table.add_column(titles[n], justify="left" if n < left else "right", overflow="fold")
        for row in shown:
            table.add_row(*(Text(row[n]) for n in columns))
        tables += ["", table] if tables else [table]
    return Group(*tables)


def _blocks(wide: Sequence[int], width: int) -> list[list[int]]:
    """Which columns stand side by side, by how wide they are; the first stands in every block.

    >>> _blocks([4, 5, 5, 5], 20), _blocks([30, 5], 20)
    ([[0, 1, 2], [0, 3]], [[0, 1]])
    """
    blocks: list[list[int]] = [[0]]
    for n in range(1, len(wide)):
        block = blocks[-1]
        if len(block) > 1 and sum(wide[m] + GAP for m in block) + wide[n] > width:
            blocks.append([0])
        blocks[-1].append(n)
    return blocks
