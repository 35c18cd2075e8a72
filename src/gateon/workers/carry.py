"""Carrying out a plan: pieces are handed out as there is room, and lost ones again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ..runs.progress import Progress, Quiet
from ..runs.stopping import stoppable
from .board import Board
from .plan import Piece, Plan
from .telling import Dropped, Telling

__all__ = ["News", "Pool", "carry_out", "one_after_another"]

DEATHS = 5  # of the workers of one piece, without a step further in between
PAUSE = 5.0  # seconds before retrying a directory that a lost worker may still hold
PATIENCE = 300.0  # seconds after which such a directory is taken to be held by another process


class News(NamedTuple):
    """What a pool has heard about a piece.

    Args:
        name: of the piece.
        kind: a call of `Progress` (begin, step, task), an `End`, died (its worker ended) or lost
            (its node did, which is not the fault of the piece).
        content: the arguments of the call, the result, the error, or why it died.
    """

    name: str
    kind: str
    content: Any


class Pool(Protocol):
    """Workers that pieces are given to."""

    @property
    def room(self) -> int:
        """How many further pieces it can take."""

    def start(self, piece: Piece) -> None:
        """Give a piece to a worker."""

    def news(self, seconds: float) -> list[News]:
        """What was heard since; waits at most this long for something."""

    def drop(self, name: str) -> None:
        """Let a piece end without saving."""

    def stop(self) -> None:
        """Let all pieces save and end."""

    def close(self) -> None:
        """End all workers, even busy ones."""


def one_after_another(plan: Plan, progress: Callable[[], Progress | None]) -> None:
    """Carry out a plan in this process."""
    while (piece := plan.next()) is not None:
        told = _Both(plan, piece, progress() or Quiet())
        try:
            result = piece.here(told)
        except Dropped:
            result = None
        plan.finished(piece, result)


class _Both(Telling):
    """Progress that is shown, and told to the plan."""

    def __init__(self, plan: Plan, piece: Piece, shown: Progress) -> None:
        def send(event: str, told: Any) -> bool:
            getattr(shown, event)(*told)
            return plan.heard(piece, event, told)

        super().__init__(send, often=0.0)
        self.shown = shown

    def end(self) -> None:
        self.shown.end()


def carry_out(plan: Plan, pool: Pool, board: Board) -> None:
    """Carry out a plan with the workers of a pool.

    A signal lets all pieces save and end, and is raised when they have. So is the error of a piece
    that failed. Pieces whose workers died are given to others.

    Args:
        plan: the pieces.
        pool: the workers.
        board: shows it.
    """
    work = _Work(plan, pool, board)
    board.open(len(plan))
    try:
        with stoppable() as stop:
            while work.go_on(stopped=bool(stop)):
                for news in pool.news(0.2):
                    work.hear(news)
    finally:
        pool.close()
        board.close()
    if work.failure is not None:
        raise work.failure
    if stop:
        raise stop.reason


@dataclass
class _Lost:
    """How often the workers of a piece were lost, and where it was."""

    deaths: int = 0
    furthest: tuple[int, int] = (-1, 0)
    since: float = 0.0
    again: float = 0.0  # not before this time


@dataclass
class _Work:
    plan: Plan
    pool: Pool
    board: Board
    running: dict[str, Piece] = field(default_factory=dict)
    again: list[Piece] = field(default_factory=list)
    lost: dict[str, _Lost] = field(default_factory=dict)
    failure: BaseException | None = None
    ending: bool = False

    def go_on(self, stopped: bool) -> bool:
        """Hand out what there is room for; return whether anything is left to wait for."""
        if (stopped or self.failure) and not self.ending:
            self.ending = True
            if self.running:
                self.board.note(f"Stopping: waiting until {len(self.running)} runs are saved.")
                self.pool.stop()
        while not self.ending and self.pool.room > 0 and (piece := self._next()) is not None:
            self.running[piece.name] = piece
            self.pool.start(piece)
        return bool(self.running or (self.again and not self.ending))

    def _next(self) -> Piece | None:
        for piece in self.again:
            if self.lost[piece.name].again <= time.monotonic():
                self.again.remove(piece)
                return piece
        return self.plan.next()

    def hear(self, news: News) -> None:
        """What a piece reports, or how it ended."""
        name, kind, content = news
        piece = self.running.get(name)
        if piece is None:
            return
        if kind in ("begin", "step", "found", "task"):
            self.board.told(name, kind, content)
            if kind in ("step", "task"):
                self._note_place(name, content[0] + (kind == "task"), content[1], kind)
            if not self.plan.heard(piece, kind, content):
                self.pool.drop(name)
            return
        del self.running[name]
        self.board.ended(name, kind)
        if kind in ("done", "dropped"):
            self.plan.finished(piece, content if kind == "done" else None)
        elif kind == "failed":
            self.failure = self.failure or content
        elif not self.ending:
            self._put_back(piece, kind, content)

    def _note_place(self, name: str, task: int, step: Any, kind: str) -> None:
        place = (task, 0 if kind == "task" else step)
        held = self.lost.get(name)
        if held is not None and place > held.furthest:
            held.deaths = 0
        if held is None or place > held.furthest:
            self.lost[name] = _Lost(0 if held is None else held.deaths, place)

    def _put_back(self, piece: Piece, kind: str, why: Any) -> None:
        """It was lost, or its directory is still held by a worker that was."""
        held, now = self.lost.setdefault(piece.name, _Lost()), time.monotonic()
        if kind == "busy":
            if not held.since or now - held.since > PATIENCE:
                self.failure = ValueError(why)
                return
            held.again = now + PAUSE
        elif kind in ("died", "lost"):
            held.since = now
            held.deaths += kind == "died"
            if held.deaths >= DEATHS:
                self.failure = RuntimeError(
                    f"The worker of {piece.name} ended {held.deaths} times at the same place "
                    f"({why}): memory may have run out; begin it alone with gateon run."
                )
                return
        self.again.append(piece)
