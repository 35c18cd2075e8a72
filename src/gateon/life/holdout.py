"""The share of rows that is held out for measuring where data have no part for it.

A row's own content decides on which side it falls, not its place: it stays there when rows are
shuffled, when a file grows, and when the same row comes in another file. Equal rows fall on the
same side. With u(row) in [0, 1) drawn from sha256(seed, key), a row is held out if u < share. So a
label's share is right on average and differs by chance; the guarantee is that every label with two
different rows has one on each side. Only for labels too small for their share can a row change
sides as more rows come.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .understand import Understanding

__all__ = ["divided", "held_out_words", "hold_out"]

FEW = 30  # rows: an accuracy over fewer says almost nothing


def hold_out(
    labels: Sequence[str] | NDArray[Any],
    keys: Sequence[bytes],
    share: float = 0.1,
    seed: int = 0,
) -> dict[str, NDArray[np.int64]]:
    """The rows to train on and those held out, as "train" and "validation".

    Args:
        labels: of all rows.
        keys: the key of each row, from `row_keys`.
        share: of the rows to hold out, between 0 and 1.
        seed: another seed holds out other rows.

    >>> keys = [bytes([n]) for n in range(20)]
    >>> parts = hold_out(["a"] * 10 + ["b"] * 10, keys, share=0.2)
    >>> parts["validation"].tolist()
    [6, 9, 11, 12, 17]
    """
    if not 0 < share < 1:
        raise ValueError(f"share must be between 0 and 1, got {share}.")
    if len(labels) != len(keys):
        raise ValueError(f"Give as many keys as labels: there are {len(keys)} and {len(labels)}.")
    drawn = {key: _draw(key, seed) for key in set(keys)}
    held = {key for key, u in drawn.items() if u < share}
    keys_of: dict[str, set[bytes]] = {label: set() for label in sorted(set(labels))}
    for label, key in zip(labels, keys, strict=True):
        keys_of[label].add(key)
    for own in keys_of.values():
        if len(own) > 1 and not own & held:
            held.add(min(own, key=lambda key: (drawn[key], key)))
    for own in keys_of.values():  # last: learning from a row matters more than measuring on it
        if own <= held:
            held.remove(max(own, key=lambda key: (drawn[key], key)))
    out = np.array([key in held for key in keys], np.bool_)
    return {"train": np.flatnonzero(~out), "validation": np.flatnonzero(out)}


def divided(
    understanding: Understanding, task: str | None = None, share: float = 0.1, seed: int = 0
) -> dict[str, NDArray[np.int64]]:
    """The rows of each part, of all data or of one task, with rows held out if there are none.

    Args:
        understanding: of labelled data.
        task: which task, where a column says.
        share: of the training rows to hold out if there is no validation part.
        seed: of what is held out.
    """
    parts = dict(understanding.parts)
    if task is not None:
        parts = {
            part: np.intersect1d(rows, understanding.tasks[task]) for part, rows in parts.items()
        }
    if len(parts.get("validation", ())):
        return parts
    train = parts["train"]
    drawn = hold_out(
        understanding.names[train], [understanding.keys[row] for row in train], share, seed
    )
    return parts | {part: train[rows] for part, rows in drawn.items()}


def held_out_words(
    labels: Sequence[str] | NDArray[Any], parts: dict[str, NDArray[np.int64]]
) -> str:
    """What was held out, and how much results on it can say.

    The error is that of a share p of n rows at its widest, p = 1/2: 1.96 sqrt(p (1 - p) / n).
    """
    held = parts["validation"]
    if not len(held):
        return (
            "No row could be held out, so nothing can be measured: give every label several rows."
        )
    without = set(labels) - {labels[row] for row in held}
    error = 100 * 0.98 / len(held) ** 0.5
    said = (
        f"{len(held):,} of {len(labels):,} rows ({len(held) / len(labels):.0%}) are held out for "
        f"measuring, drawn by their content; an accuracy over them is good to {error:.0f} points."
    )
    if len(held) < FEW:
        said += " That is too few to say much."
    if without:
        said += f" {len(without)} of {len(set(labels))} labels have too few rows to hold one out."
    return said


def _draw(key: bytes, seed: int) -> float:
    digest = sha256(f"held out {seed} ".encode() + key).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56)
