"""HTML that objects show of themselves in a notebook: small, escaped, at home in light and dark."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

__all__ = ["block", "some", "table"]

LINE = "1px solid rgba(128,128,128,.35)"
MOST = 12  # rows and columns of a table that are shown
Shades = Mapping[tuple[int, int], float]  # (row, column): from 0, none, to 1


def block(title: str, *parts: str, note: str = "") -> str:
    """A title, parts of HTML below it, and a note.

    >>> block("a <b>", note="1 & 2")
    '<div><b>a &lt;b&gt;</b><div style="opacity:.7">1 &amp; 2</div></div>'
    """
    below = f'<div style="opacity:.7">{html.escape(note)}</div>' if note else ""
    return f"<div><b>{html.escape(title)}</b>{''.join(parts)}{below}</div>"


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], shades: Shades | None = None
) -> str:
    """A table; its first column names the rows.

    Args:
        titles: of the columns.
        rows: their cells.
        shades: how much a cell is shaded, by row and column.

    >>> "<script>" in table(["<script>"], [["<script>"]])
    False
    """
    shades = shades or {}
    head = "".join(_cell("th", title, n, 0.0) for n, title in enumerate(titles))
    body = "".join(
        "<tr>"
        + "".join(_cell("td", cell, n, shades.get((at, n), 0.0)) for n, cell in enumerate(row))
        + "</tr>"
        for at, row in enumerate(rows)
    )
    style = f"border-collapse:collapse;border-top:{LINE};border-bottom:{LINE};margin:.3em 0"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def some(count: int, most: int = MOST) -> list[int]:
    """At most `most` of the numbers below `count`, evenly spread, with the first and the last.

    >>> some(3, 5), some(100, 5)
    ([0, 1, 2], [0, 25, 50, 74, 99])
    """
    if count <= most or most < 2:
        return list(range(count))
    return [round(n * (count - 1) / (most - 1)) for n in range(most)]


def _cell(kind: str, text: str, column: int, shade: float) -> str:
    side = "left" if column == 0 else "right"
    colour = f";background:rgba(213,94,0,{min(0.75, shade):.2f})" if shade > 0 else ""
    style = f"text-align:{side};padding:.1em .6em;font-variant-numeric:tabular-nums{colour}"
    return f'<{kind} style="{style}">{html.escape(text)}</{kind}>'
