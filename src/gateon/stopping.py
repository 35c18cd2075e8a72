"""Stopping between two steps: Ctrl-C, and SIGTERM as schedulers send it before they take a machine away."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Interrupted", "Stop", "Terminated", "stoppable"]


class Interrupted(KeyboardInterrupt):
    """The user stopped a run; it was saved, and the same call goes on."""


class Terminated(Interrupted):
    """The system asked a run to end; it was saved, and the same call goes on."""


class Stop:
    """Whether somebody asked to stop, and who."""

    signal: int | None = None

    def __bool__(self) -> bool:
        """Whether to stop."""
        return self.signal is not None

    @property
    def reason(self) -> Interrupted:
        """What to raise once everything is saved."""
        return Terminated() if self.signal == signal.SIGTERM else Interrupted()


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Signals are noted instead of raising in the middle of a step; a Ctrl-C after another one raises at once."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # which alone hears of signals
        yield stop
        return

    def on_signal(number: int, frame: Any) -> None:
        if stop and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
