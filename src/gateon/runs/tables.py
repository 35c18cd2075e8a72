"""Tables of accuracies in files: rows that were not measured take no room."""

from __future__ import annotations

from typing import Any

__all__ = ["packed", "unpacked"]

SKIP, THEN = "skip", "then"  # {"skip": 3, "then": [0.9]} stands for [null, null, null, 0.9]


def packed(rows: list[list[float | None]]) -> list[Any]:
    """Rows without the unmeasured entries at their start, so that sparse tables stay small.

    >>> packed([[0.9], [None, 0.8], [None, None, 0.7]])
    [[0.9], [None, 0.8], {'skip': 2, 'then': [0.7]}]
    """
    skipped = [
        next((j for j, value in enumerate(row) if value is not None), len(row)) for row in rows
    ]
    return [
        row if skip < 2 else {SKIP: skip, THEN: row[skip:]}
        for row, skip in zip(rows, skipped, strict=True)
    ]


def unpacked(rows: Any, most: int) -> Any:
    """What `packed` was given; rows in full stay. More figures than `most` are refused.

    >>> unpacked([[0.9], [None, 0.8], {"skip": 2, "then": [0.7]}], most=100)
    [[0.9], [None, 0.8], [None, None, 0.7]]
    """
    if not isinstance(rows, list):
        return rows
    full: list[Any] = []
    for row in rows:
        if isinstance(row, dict):
            skip, then = row[SKIP], row[THEN]
            whole = type(skip) is int and 0 <= skip < len(rows)
            if not whole or not isinstance(then, list) or skip > most:
                raise ValueError("its tables have gaps")
            row, most = [None] * skip + then, most - skip
        full.append(row)
    return full
