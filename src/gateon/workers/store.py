"""The directory of many runs where it is a URL: claimed by one program, with a copy of what is small."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..storage.claim import Claim, claimed
from ..storage.remote import Remote, StorageError
from .mirror import OWNER, Mirror, fetch_small, patiently
from .plan import Piece, Plan
from .scratch import scratch

__all__ = ["Store", "stored_at"]

AT_ONCE = 8  # directories that are fetched at the same time


class Store:
    """A directory of runs at a URL, and a copy here to plan from.

    Args:
        folder: the copy: files of its own go both ways, and those of runs come from the URL, but
            for checkpoints.
        remote: the directory.
        claim: on it; None to read only.
    """

    def __init__(self, folder: Path, remote: Remote, claim: Claim | None = None) -> None:
        self.folder, self.remote, self.claim = folder, remote, claim
        self.mirror = Mirror(folder, remote, whole=False)

    def at(self, folder: Path) -> Remote:
        """Where a directory of the copy is at the URL."""
        inside = folder.relative_to(self.folder).as_posix()
        return self.remote if inside == "." else self.remote.below(inside)

    def shown(self, path: Path) -> str:
        """The URL of a file of the copy."""
        return f"{self.remote}/{path.relative_to(self.folder).as_posix()}"

    def fetch_all(self, folder: Path) -> None:
        """Fetch the small files of all runs below a directory of the copy."""
        there = self.at(folder)

        def fetch(name: str) -> None:
            one = there.below(name)
            if OWNER in one.files():  # else it is none of ours
                fetch_small(one, folder / name)

        with ThreadPoolExecutor(AT_ONCE) as several:
            list(several.map(lambda name: patiently(lambda: fetch(name)), there.folders()))

    def following(self, plan: Plan) -> Plan:
        """The plan, whose own files are at the URL before a piece that they tell of begins."""
        return _Stored(plan, self)


class _Stored:
    """A plan whose pieces are done at a URL."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan, self.store = plan, store

    def next(self) -> Piece | None:
        piece = self.plan.next()
        if piece is not None:
            patiently(self.store.mirror.sync)
        return piece

    def heard(self, piece: Piece, event: str, told: Sequence[Any]) -> bool:
        if self.store.claim is not None:
            self.store.claim.check()
        return self.plan.heard(piece, event, told)

    def finished(self, piece: Piece, result: Any) -> None:
        there = self.store.at(piece.folder)
        patiently(lambda: fetch_small(there, piece.folder))
        self.plan.finished(piece, result)

    def __len__(self) -> int:
        return len(self.plan)


@contextmanager
def stored_at(
    url: str, *, claim: bool = True, told: Callable[[str], None] = lambda text: None
) -> Iterator[Store]:
    """Hold a directory at a URL: give its `folder` and an `Engine(on=..., store=...)` to a plan.

    What is written beside the runs is brought over at the end, also if the plan was stopped.

    Args:
        url: as fsspec reads it.
        claim: False to look only, while another program may hold it.
        told: hears what is waited for.

    >>> with stored_at("memory://store") as store:
    ...     _ = (store.folder / "table.md").write_text("| 1 | 2 |")
    ...     store.shown(store.folder / "table.md")
    'memory://store/table.md'
    >>> Remote("memory://store").read("table.md")
    b'| 1 | 2 |'
    """
    remote = Remote(url)
    with scratch() as root:
        folder = root / (remote.name or "runs")
        if not claim:
            folder.mkdir()
            yield Store(folder, remote)
            return
        with claimed(remote, told) as held:
            store = Store(folder, remote, held)
            for name in remote.files():
                if name.startswith(".seen-"):  # left by a program that died
                    remote.remove(name)
            store.mirror.begin()
            try:
                yield store
            except BaseException:
                with _as_well():
                    store.mirror.finish()
                raise
            store.mirror.finish()


@contextmanager
def _as_well() -> Iterator[None]:
    """What goes wrong in here says less than what went wrong before."""
    try:
        yield
    except StorageError:
        return
