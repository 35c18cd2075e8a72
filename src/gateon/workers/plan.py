"""A plan: pieces of work, some of which must wait for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ..runs.progress import Progress

__all__ = ["Listed", "Piece", "Plan"]


@dataclass(frozen=True)
class Piece:
    """One run of a plan.

    Args:
        name: unique in the plan.
        folder: its directory, where it is resumed.
        do: does it, given the directory that holds those of all pieces, which on another machine
            may be elsewhere, and where to report; it is pickled, and must return at once if it is
            finished already.
        after: names of the pieces that must be finished before.
    """

    name: str
    folder: Path
    do: Callable[[Path, Progress], Any]
    after: tuple[str, ...] = ()

    @property
    def here(self) -> Callable[[Progress], Any]:
        """Does it in its own directory."""
        return partial(self.do, self.folder.parent)


class Plan(Protocol):
    """Pieces that are handed out one by one, and what becomes of them."""

    def next(self) -> Piece | None:
        """One that can begin now; None while there is none."""

    def heard(self, piece: Piece, event: str, told: Sequence[Any]) -> bool:
        """A piece reported by a call of `Progress`; return whether it should go on."""

    def finished(self, piece: Piece, result: Any) -> None:
        """A piece was done, or dropped with the result None."""

    def __len__(self) -> int:
        """How many pieces there are in all."""


class Listed:
    """A plan whose pieces are known from the start.

    Args:
        pieces: in the order in which they start, as far as those they wait for allow.

    >>> first = Piece("a", Path("a"), print)
    >>> plan = Listed([Piece("b", Path("b"), print, after=("a",)), first])
    >>> plan.next().name, plan.next()
    ('a', None)
    >>> plan.finished(first, 1)
    >>> plan.next().name, plan.results
    ('b', {'a': 1})
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = {piece.name: piece for piece in pieces}
        self.waiting = list(self.pieces.values())
        self.results: dict[str, Any] = {}
        missing = {name for piece in pieces for name in piece.after} - self.pieces.keys()
        if missing or len(self.pieces) < len(pieces):
            raise ValueError(f"The plan lacks {sorted(missing)}, or has pieces of the same name.")

    def next(self) -> Piece | None:
        """The first that waits for nothing."""
        for piece in self.waiting:
            if self.results.keys() >= {*piece.after}:
                self.waiting.remove(piece)
                return piece
        return None

    def heard(self, piece: Piece, event: str, told: Sequence[Any]) -> bool:
        """Everything goes on."""
        return True

    def finished(self, piece: Piece, result: Any) -> None:
        """Keep the result."""
        self.results[piece.name] = result

    def __len__(self) -> int:
        """How many pieces there are in all."""
        return len(self.pieces)
