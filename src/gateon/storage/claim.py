"""One program at a time at a URL: a claim that is renewed, so that one left by the dead is seen.

Storage at a URL has no locks. But what was written is listed from then on, and so of two programs
that each write a claim of their own and then look for others, at least one sees the other's.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import NamedTuple
from uuid import uuid4

from .lock import BusyError, Owner
from .remote import Remote, StorageError

__all__ = ["Claim", "claimed"]

PREFIX = ".claim-"
LOOK = 1.0  # seconds between two looks at other claims
BEAT = 10.0  # seconds between two renewals
LEASE = 60.0  # seconds without one after which the owner is gone


class Held(NamedTuple):
    """What is written in a claim.

    Args:
        owner: who made it.
        holds: whether it is settled; before, its owner still looks for others.
        beat: how often it was renewed.
    """

    owner: Owner
    holds: bool
    beat: int

    def written(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self.owner) | {"holds": self.holds, "beat": self.beat}).encode()

    @classmethod
    def read(cls, remote: Remote, name: str) -> Held | None:
        """What a claim says; None if it is not there, or is no claim."""
        content = remote.read(name)
        owner = None if content is None else Owner.parsed(content)
        if content is None or owner is None:
            return None
        held = json.loads(content)
        beat = held.get("beat")
        return cls(owner, held.get("holds") is True, beat if isinstance(beat, int) else 0)


class Claim:
    """A claim on a directory at a URL.

    Args:
        remote: the directory.
        told: hears what is waited for.
    """

    def __init__(self, remote: Remote, told: Callable[[str], None] = lambda text: None) -> None:
        self.remote, self.told = remote, told
        self.name = PREFIX + uuid4().hex
        self.held = Held(Owner.me(), holds=False, beat=0)
        self.lost: BusyError | None = None
        self._over = threading.Event()

    def take(self) -> None:
        """Take the directory; BusyError if a program that lives has it."""
        self.renew()
        try:
            first: dict[str, tuple[Held | None, float]] = {}  # how others were when first seen
            while not self._settled(first):
                time.sleep(LOOK)
                self.renew()
        except BaseException:
            with suppress(StorageError):
                self.release()
            raise
        self.held = self.held._replace(holds=True)
        self.renew()

    def renew(self) -> None:
        """Say that this program lives."""
        self.held = self.held._replace(beat=self.held.beat + 1)
        self.remote.write(self.name, self.held.written())

    def release(self) -> None:
        """Leave the directory to others."""
        self.remote.remove(self.name)

    def check(self) -> None:
        """BusyError if another program has taken the directory, since this one was not heard of."""
        if self.lost is not None:
            raise self.lost

    def keep(self) -> None:
        """Renew it until it is released; run in a thread."""
        while not self._over.wait(BEAT):
            with suppress(StorageError):  # a network may come back
                others = [held for name in self._others() if (held := Held.read(self.remote, name))]
                holder = next((held.owner for held in others if held.holds), None)
                if holder is not None or self.remote.read(self.name) is None:
                    self.lost = BusyError(self.remote.url, holder, "")
                    return
                self.renew()

    def _others(self) -> list[str]:
        files = self.remote.files()
        return [name for name in files if name.startswith(PREFIX) and name != self.name]

    def _settled(self, first: dict[str, tuple[Held | None, float]]) -> bool:
        """Whether there is no other claim; those that were left behind are taken away."""
        now, waiting = time.monotonic(), False
        for name in self._others():
            held = Held.read(self.remote, name)
            before, since = first.setdefault(name, (held, now))
            here = held is not None and held.owner.host == self.held.owner.host
            if (held is not None and held.owner.gone) or (not here and now - since > LEASE):
                self.remote.remove(name)
                continue
            # Of two that begin at once the first by name goes on; the other is about to leave.
            lives = here or (held is not None and held != before)
            if held is not None and lives and (held.holds or name < self.name):
                raise BusyError(self.remote.url, held.owner, "")
            if since == now and not here and held is not None:
                self.told(
                    f"Waiting up to {LEASE:g} s to see whether {held.owner} still runs there."
                )
            waiting = True
        return not waiting

    def end(self) -> None:
        """Let `keep` return."""
        self._over.set()


@contextmanager
def claimed(remote: Remote, told: Callable[[str], None] = lambda text: None) -> Iterator[Claim]:
    """Hold a directory at a URL; BusyError if another program has it.

    A claim whose owner is gone does not count: on this machine that is known at once, on another
    one after a minute in which it was not renewed.

    Args:
        remote: the directory.
        told: hears what is waited for.

    >>> there = Remote("memory://claimed")
    >>> with claimed(there) as claim:
    ...     claim.check()
    ...     there.files() == [claim.name]
    True
    >>> there.files()
    []
    """
    claim = Claim(remote, told)
    claim.take()
    beats = threading.Thread(target=claim.keep, daemon=True)
    beats.start()
    try:
        yield claim
    finally:
        claim.end()
        beats.join()
        with suppress(StorageError):
            claim.release()
