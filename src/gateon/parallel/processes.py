"""The processes that train one network together: who they are, and what they tell each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist

from .lost import RefusedError, hearing

__all__ = ["ALONE", "Processes", "current", "together"]

PATIENCE = timedelta(minutes=10)  # how long a process waits for the others
Found = TypeVar("Found")


@dataclass(frozen=True)
class Processes:
    """The processes that share every batch.

    All of them make the same calls in the same order, and hold the same network.

    Args:
        rank: of this process, from 0.
        count: how many there are.

    >>> ALONE.count, ALONE.is_first, ALONE.share(10)
    (1, True, slice(0, 10, None))
    """

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes files and talks to the terminal."""
        return self.rank == 0

    def share(self, samples: int, rank: int | None = None) -> slice:
        """The samples of a batch that a process computes, by default this one.

        >>> [Processes(count=3).share(10, rank) for rank in range(3)]
        [slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
        """
        rank = self.rank if rank is None else rank
        return slice(rank * samples // self.count, (rank + 1) * samples // self.count)

    def any(self, flag: bool) -> bool:
        """Whether it holds in any process."""
        if self.count == 1:
            return flag
        found = torch.tensor(float(flag))
        with hearing():
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found)

    def first(self, do: Callable[[], Found]) -> Found:
        """The first process's result, in all of them; the others wait for it.

        An error is raised in the first, and in the others as RefusedError.
        """
        if self.count == 1:
            return do()
        said: list[Any] = [None, None]
        try:
            if self.is_first:
                said[0] = do()
        except Exception as reason:
            said[1] = str(reason)
            raise
        finally:
            with hearing():
                dist.broadcast_object_list(said, 0)
        if said[1] is not None:
            raise RefusedError(said[1])
        found: Found = said[0]
        return found

    def check_alike(self, model: nn.Module) -> None:
        """Refuse to go on with networks that are no longer the same."""
        if self.count == 1:
            return
        tensors = [t for t in model.state_dict().values() if isinstance(t, Tensor)]
        total = torch.stack([t.double().sum().cpu() for t in tensors]).sum()
        both = torch.stack([total, -total])
        with hearing():
            dist.all_reduce(both, dist.ReduceOp.MAX)
        if both[0] != -both[1]:
            raise ValueError(
                "The processes no longer hold the same network, as may happen on different kinds "
                "of processors: use machines of one kind, and go on from the last checkpoint."
            )


ALONE = Processes()


def current() -> Processes:
    """Those that torch.distributed was started with; this one alone if it was not.

    >>> current()
    Processes(rank=0, count=1)
    """
    if not (dist.is_available() and dist.is_initialized()):
        return ALONE
    return Processes(dist.get_rank(), dist.get_world_size())


def _backend(device: str) -> str:
    """How the processes communicate: what they tell each other lies on the CPU, whatever trains.

    By itself torch would choose one way, for the accelerator of the machine alone.

    >>> _backend("cpu"), _backend("cuda:1")
    ('cpu:gloo', 'cpu:gloo,cuda:nccl')
    """
    kind, ways = torch.device(device).type, dist.Backend.default_device_backend_map
    return "cpu:gloo" if kind == "cpu" or kind not in ways else f"cpu:gloo,{kind}:{ways[kind]}"


@contextmanager
def together(device: str = "cpu") -> Iterator[Processes]:
    """Join the processes that torchrun has started, and leave them afterwards.

    Args:
        device: where the network will be; on "cuda" every process takes a device of its own.
    """
    asked = _asked(os.environ)
    if asked.count == 1:
        yield ALONE
        return
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", asked.rank)))
    try:
        dist.init_process_group(
            _backend(device), rank=asked.rank, world_size=asked.count, timeout=PATIENCE
        )
    except (RuntimeError, ValueError) as reason:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise ValueError(
            f"The {asked.count} processes did not meet at {where}: start all of them at the same "
            "time, by torchrun, with an address that all of them reach."
        ) from reason
    try:
        yield asked
    finally:
        dist.destroy_process_group()


def _asked(environment: Mapping[str, str]) -> Processes:
    """Who takes part, as torchrun says it.

    >>> _asked({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "29500"})
    Processes(rank=1, count=2)
    >>> _asked({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "29500"})
    Traceback (most recent call last):
    ...
    ValueError: RANK is '2' and WORLD_SIZE is '2': start the processes by torchrun, which sets both.
    """
    size, rank = environment.get("WORLD_SIZE"), environment.get("RANK")
    if size is None and rank is None:
        return ALONE
    if not (size and rank and size.isdecimal() and rank.isdecimal() and int(rank) < int(size)):
        raise ValueError(
            f"RANK is {rank!r} and WORLD_SIZE is {size!r}: start the processes by torchrun, which "
            "sets both."
        )
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if int(size) > 1 and missing:
        raise ValueError(
            f"WORLD_SIZE is {size}, but {' and '.join(missing)} is not set: start the processes by "
            "torchrun, which sets it, or say where the first of them listens."
        )
    return Processes(int(rank), int(size))
