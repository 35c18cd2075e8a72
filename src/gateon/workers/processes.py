"""Workers that are processes of this machine, each with threads and cores of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from .carry import News
from .plan import Piece
from .telling import Telling, outcome

__all__ = ["Processes", "check_cores", "cores_here"]

PATIENCE = 5.0  # seconds an idle worker has to end


def cores_here() -> list[int]:
    """The cores this process may use.

    >>> len(cores_here()) > 0
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def check_cores(workers: int, threads: int) -> None:
    """Refuse more workers than this machine has cores: ValueError."""
    cores = len(cores_here())
    if workers * threads > cores:
        most = max(1, cores // threads)
        each = "" if threads == 1 else f" of {threads} threads each"
        count = f"{cores} core{'s' * (cores > 1)}"
        raise ValueError(
            f"{workers} workers{each} are more than the {count} of this machine: "
            f"give --workers {most}, or fewer."
        )


class Processes:
    """A pool of processes, started when needed and kept until the plan is over.

    Args:
        workers: how many.
        threads: of each.
    """

    def __init__(self, workers: int, threads: int = 1) -> None:
        check_cores(workers, threads)
        cores = cores_here()
        # With fewer workers than cores the system knows better which cores are free.
        full = workers * threads == len(cores)
        self.threads = threads
        self.places: list[Sequence[int]] = [
            cores[n * threads : (n + 1) * threads] if full else [] for n in range(workers)
        ]
        self.slots: list[_Worker | None] = [None] * workers

    @property
    def room(self) -> int:
        """How many workers are idle."""
        return sum(worker is None or worker.piece is None for worker in self.slots)

    def start(self, piece: Piece) -> None:
        """Give a piece to the first idle worker."""
        place = next(n for n, one in enumerate(self.slots) if one is None or one.piece is None)
        worker = self.slots[place]
        if worker is None or not worker.give(piece):
            name = f"worker {place + 1} of {len(self.slots)}"
            worker = self.slots[place] = _Worker(name, self.places[place], self.threads)
            worker.give(piece)

    def news(self, seconds: float) -> list[News]:
        """What the workers sent; one that ended lets its piece die."""
        busy = [one for one in self.slots if one is not None and one.piece is not None]
        found: list[News] = []
        ready = set(wait([one.pipe for one in busy], seconds))
        for worker in busy:
            if worker.pipe not in ready:
                continue
            assert worker.piece is not None
            name = worker.piece.name
            try:
                while worker.pipe.poll():
                    kind, content = worker.pipe.recv()
                    found.append(News(name, kind, content))
                    if kind not in ("begin", "step", "found", "task"):
                        worker.piece = None
                        break
            except (EOFError, OSError):
                worker.process.join(PATIENCE)
                found.append(News(name, "died", _ending(worker.process.exitcode)))
                self.slots[self.slots.index(worker)] = None
                worker.pipe.close()
        return found

    def drop(self, name: str) -> None:
        """Tell the worker of a piece to leave it."""
        for worker in self.slots:
            if worker is not None and worker.piece is not None and worker.piece.name == name:
                with suppress(OSError):
                    worker.pipe.send(None)

    def stop(self) -> None:
        """The signal that lets a run save and end."""
        for worker in self.slots:
            if worker is not None:
                worker.process.terminate()

    def close(self) -> None:
        """Let idle workers go, and end the others."""
        workers = [worker for worker in self.slots if worker is not None]
        for worker in workers:
            worker.pipe.close()
            if worker.piece is not None:
                worker.process.kill()
        for worker in workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self.slots = [None] * len(self.slots)


class _Worker:
    """One process, and the piece it has."""

    def __init__(self, name: str, cores: Sequence[int], threads: int) -> None:
        self.piece: Piece | None = None
        self.pipe, other = multiprocessing.Pipe()
        where = f" on core {', '.join(map(str, cores))}" if cores else ""
        context = multiprocessing.get_context("spawn")
        self.process: SpawnProcess = context.Process(
            target=serve, args=(other, cores, threads), name=name + where, daemon=True
        )
        with _deaf_to_ctrl_c():
            self.process.start()
        other.close()

    def give(self, piece: Piece) -> bool:
        """Send a piece; return whether the process still takes it."""
        try:
            self.pipe.send(piece.here)
        except (BrokenPipeError, ConnectionError):
            return False
        self.piece = piece
        return True


def serve(pipe: Connection, cores: Sequence[int], threads: int) -> None:
    """Do pieces until the pipe is closed; run in a process of its own.

    Args:
        pipe: pieces come from it, and reports and results go back.
        cores: to stay on; any if there is none.
        threads: for torch.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a run hears of it, and in between there is time
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if cores and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
    import torch

    def send(event: str, told: Sequence[Any]) -> bool:
        pipe.send((event, told))
        return not _is_dropped(pipe)

    while True:
        try:
            do = pipe.recv()
            if do is None:  # the drop of a piece that had ended by itself
                continue
            torch.set_num_threads(threads)
            pipe.send(outcome(do, Telling(send)))
        except (EOFError, OSError):
            return


def _is_dropped(pipe: Connection) -> bool:
    """Whether the parent sent None, which while a piece is done means to leave it."""
    return pipe.poll() and pipe.recv() is None


def _end_with_parent() -> None:
    """A worker whose parent is gone saves what it has and ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """What starts in here ignores Ctrl-C meanwhile: it would end with a traceback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _ending(code: int | None) -> str:
    """How a process ended, in words.

    >>> _ending(-9), _ending(1)
    ('by SIGKILL', 'with exit code 1')
    """
    if code is not None and code < 0:
        return f"by {signal.Signals(-code).name}"
    return f"with exit code {code}"
