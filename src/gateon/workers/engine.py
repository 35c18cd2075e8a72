"""The engine that carries out a plan."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from ..options.kinds import Within, checked
from ..runs.progress import Progress
from .board import Board, NoBoard
from .carry import carry_out, one_after_another
from .plan import Plan
from .store import Store

__all__ = ["Engine"]

Workers = Annotated[int, Within(1, 100_000)]
Share = Annotated[float, Within(0.0, 1024.0)]


@dataclass(frozen=True)
class Engine:
    """Where the pieces of a plan are done.

    Args:
        workers: how many pieces at once: processes of this machine, or tasks on Ray; None for one
            after another in this process, or as many as the Ray cluster has room for.
        on: a Ray cluster, as `connect.address_of` reads it; None for this machine.
        gpus: for each piece on Ray; a fraction shares one.
        threads: of the processor for each piece of a worker.
        store: where the directory of all pieces is at a URL, and not on storage that all nodes see.
    """

    workers: int | None = None
    on: str | None = None
    gpus: float = 0.0
    threads: int = 1
    store: Store | None = None

    def __post_init__(self) -> None:
        """Validate the settings."""
        if self.workers is not None:
            checked("workers", self.workers, Workers)
        checked("gpus", self.gpus, Share)
        if self.gpus and self.on is None:
            raise ValueError("--gpus does nothing without --on ray: leave it out.")
        if self.store is not None and self.on is None:
            raise ValueError("--out is a URL, which needs --on ray: give it, or give --out a path.")

    @property
    def here(self) -> bool:
        """Whether pieces are done in this process."""
        return self.workers is None and self.on is None

    def carry_out(
        self,
        plan: Plan,
        folder: Path,
        *,
        progress: Callable[[], Progress | None] = lambda: None,
        board: Callable[[], Board] = NoBoard,
    ) -> None:
        """Carry out a plan.

        Args:
            plan: the pieces.
            folder: holds the directories of all pieces.
            progress: makes the display of a run, where they are done in this process.
            board: makes the display of all, where workers do them.
        """
        if self.here:
            one_after_another(plan, progress)
            return
        with self._pool(folder) as pool:
            carry_out(plan if self.store is None else self.store.following(plan), pool, board())

    @contextmanager
    def _pool(self, folder: Path) -> Any:
        if self.on is None:
            from .processes import Processes

            yield Processes(self.workers or 1, self.threads)
            return
        from .alike import alike
        from .on_ray import Cluster

        with alike(folder if self.store is None else self.store.at(folder)) as wanted:
            yield Cluster(self.on, wanted, self.workers, self.threads, self.gpus)
