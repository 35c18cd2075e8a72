"""Workers that are tasks of a Ray cluster: placed wherever there is room, and again elsewhere.

Nodes may come and go. A run whose node died goes on from its last checkpoint on another one, which
is why the output directory must be on storage that all nodes share, or at a URL.
"""

from __future__ import annotations

import multiprocessing
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..storage.lock import Owner, release
from ..storage.remote import Remote
from .alike import Alike
from .carry import News
from .connect import address_of, connected, first_line, last_line
from .plan import Piece
from .scratch import done_at
from .telling import Telling, outcome

__all__ = ["Cluster"]

ANSWER = 60.0  # seconds a node has to import gateon and torch


class Mailbox:
    """The mailbox of all tasks, an actor on the planning node: reports in, requests out."""

    def __init__(self) -> None:
        self.letters: list[tuple[str, str, Any]] = []
        self.dropped: set[str] = set()

    def tell(self, name: str, kind: str, content: Any) -> bool:
        """Keep a report; return whether the piece should go on."""
        self.letters.append((name, kind, content))
        return name not in self.dropped

    def drop(self, name: str) -> None:
        """The piece is not wanted any more."""
        self.dropped.add(name)

    def take(self) -> list[tuple[str, str, Any]]:
        """All reports that were not taken yet."""
        taken, self.letters = self.letters, []
        return taken


class Cluster:
    """A pool on a Ray cluster.

    Args:
        on: as `address_of` reads it.
        alike: what every node must have.
        workers: maximum number of pieces at once; by default as many as there is room for.
        threads: cores of each piece.
        gpus: of each piece; a fraction shares one.
    """

    def __init__(
        self, on: str, alike: Alike, workers: int | None, threads: int = 1, gpus: float = 0.0
    ) -> None:
        address = address_of(on)
        self.ray, self.begun = connected(address, workers, threads)
        self.workers, self.threads, self.gpus, self.alike = workers, threads, gpus, alike
        self.pieces: dict[Any, Piece] = {}  # by the reference of their task
        self.owners: dict[str, Owner] = {}  # of the directory of each piece
        self.mailbox: Any = None
        try:
            here = self.ray.get_runtime_context().get_node_id()
            self.mailbox = self._remote(Mailbox).options(**self._at(here)).remote()
            self._check_nodes()
        except BaseException:
            self.close()
            raise

    @property
    def room(self) -> int:
        """How many more pieces cores, GPUs and `workers` allow."""
        have = self.ray.cluster_resources()
        most = int(have.get("CPU", 0) // self.threads)
        if self.gpus:
            most = min(most, int(have.get("GPU", 0) / self.gpus))
        if self.workers is not None:
            most = min(most, self.workers)
        return most - len(self.pieces)

    def start(self, piece: Piece) -> None:
        """Submit it as a task. Retrying is left to us, not Ray, as we know why it failed."""
        task = self._remote(_work).options(
            name=piece.name, num_cpus=self.threads, num_gpus=self.gpus, max_retries=0
        )
        reference = task.remote(piece, self.mailbox, self.alike, self.threads)
        self.pieces[reference] = piece

    def news(self, seconds: float) -> list[News]:
        """What the mailbox holds, and the tasks that ended."""
        if self.pieces:
            ended, _ = self.ray.wait(list(self.pieces), num_returns=1, timeout=seconds)
        else:
            time.sleep(seconds)
            ended = []
        found: list[News] = []
        for name, kind, content in self.ray.get(self.mailbox.take.remote()):
            if kind == "owner":
                self.owners[name] = Owner(*content)
            else:
                found.append(News(name, kind, content))
        for reference in ended:
            piece = self.pieces.pop(reference)
            found.append(News(piece.name, *self._end_of(reference)))
            if found[-1].kind in ("died", "lost") and piece.name in self.owners:
                release(piece.folder, self.owners[piece.name])
        return found

    def drop(self, name: str) -> None:
        """Tell the task of a piece to leave it."""
        self.mailbox.drop.remote(name)

    def stop(self) -> None:
        """What Ray does to cancel a task is a Ctrl-C to it: a run saves and ends.

        What it is telling the mailbox meanwhile must not be cancelled with it.
        """
        for reference in self.pieces:
            self.ray.cancel(reference, recursive=False)

    def close(self) -> None:
        """Leave the cluster; what still runs there ends."""
        for reference in self.pieces:
            with suppress(Exception):
                self.ray.cancel(reference, force=True)
        self.pieces = {}
        if self.mailbox is not None:
            self.ray.kill(self.mailbox)
        if self.begun:
            self.ray.shutdown()

    def _remote(self, what: Any) -> Any:
        return self.ray.remote(what)

    def _at(self, node: str) -> dict[str, Any]:
        """Options of what must be on one node, and takes no room there."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        return {"num_cpus": 0, "scheduling_strategy": place}

    def _check_nodes(self) -> None:
        """Ask every node that has cores whether it is alike."""
        able = [
            node["NodeID"]
            for node in self.ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) >= self.threads
        ]
        if not able:
            raise ValueError(
                f"No node of the cluster has {self.threads} cores for a run: add nodes to it."
            )
        check = self._remote(_checked)
        asked = [check.options(**self._at(node), max_retries=0).remote(self.alike) for node in able]
        # A node that does not answer may be on its way out; if not, its runs will be asked again.
        answered, _ = self.ray.wait(asked, num_returns=len(asked), timeout=ANSWER)
        for reference in answered:
            try:
                found = self.ray.get(reference)
            except self.ray.exceptions.RayTaskError as reason:
                raise ValueError(
                    f"A node of the cluster cannot run gateon ({last_line(reason)}): "
                    "install the same gateon and torch on every node."
                ) from reason
            except self.ray.exceptions.RayError:
                continue
            if found is not None:
                raise ValueError(found)

    def _end_of(self, reference: Any) -> tuple[str, Any]:
        errors = self.ray.exceptions
        try:
            kind, content = self.ray.get(reference)
            return kind, content
        except errors.TaskCancelledError:
            return "stopped", None
        except (errors.WorkerCrashedError, errors.OutOfMemoryError) as reason:
            return "died", first_line(reason)
        except errors.RayTaskError as reason:  # outside of the piece: what it needs is not there
            return "failed", ValueError(f"A worker could not begin: {last_line(reason)}")
        except errors.RayError as reason:  # the node, or what was on it
            return "lost", first_line(reason)


def _work(piece: Piece, mailbox: Any, alike: Alike, threads: int) -> tuple[str, Any]:
    """Do a piece; run in a worker of Ray."""
    import ray
    import torch

    try:
        alike.check()
    except ValueError as reason:
        return "failed", reason
    _hear_cancelling()
    multiprocessing.current_process().name = f"ray on {socket.gethostname()}"
    torch.set_num_threads(threads)
    me = Owner.me()

    def send(event: str, told: Sequence[Any]) -> bool:
        go_on: bool = ray.get(mailbox.tell.remote(piece.name, event, told))
        return go_on

    send("owner", (me.pid, me.host, me.since, me.born))
    if isinstance(alike.folder, Remote):
        return done_at(alike.folder, piece, send)
    return outcome(piece.here, Telling(send))


def _hear_cancelling() -> None:
    """Ray cancels a task by a Ctrl-C, which a cluster started in the background of a shell ignores."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _checked(alike: Alike) -> str | None:
    """What is different on the node this runs on."""
    try:
        alike.check()
    except ValueError as reason:
        return str(reason)
    return None
