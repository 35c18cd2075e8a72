"""Stopping between two steps: by Ctrl-C, a closed terminal, or SIGTERM from a scheduler."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Interrupted", "Stop", "Terminated", "stop_once", "stoppable"]

PATIENCE = 2.0  # seconds in which a further Ctrl-C means the same as the first


class Interrupted(KeyboardInterrupt):
    """The user stopped a run; it was saved, and the same call goes on."""


class Terminated(Interrupted):
    """The system asked a run to end; it was saved, and the same call goes on."""


class Stop:
    """Whether somebody asked to stop, and how and when.

    While a checkpoint is being written nothing breaks that off.
    """

    signal: int | None = None
    since = 0.0
    saving = False

    def __bool__(self) -> bool:
        """Whether to stop."""
        return self.signal is not None

    @property
    def reason(self) -> Interrupted:
        """What to raise once everything is saved."""
        return Interrupted() if self.signal == signal.SIGINT else Terminated()


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Note signals instead of raising in the middle of a step.

    A Ctrl-C that comes well after another one raises at once.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # which alone hears of signals
        yield stop
        return

    def on_signal(number: int, frame: Any) -> None:
        if not stop:
            stop.signal, stop.since = number, time.monotonic()
        elif (
            number == signal.SIGINT and not stop.saving and time.monotonic() - stop.since > PATIENCE
        ):
            raise KeyboardInterrupt

    numbers = [signal.SIGINT, signal.SIGTERM]
    if (
        hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    ):  # as nohup sets it
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            if stop and isinstance(handler, _Once):
                handler.asked = True
            signal.signal(number, handler)


class _Once:
    """Does what a signal does by default, at the first one only."""

    asked = False

    def __call__(self, number: int, frame: Any) -> None:
        if self.asked:
            return
        self.asked = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


@contextmanager
def stop_once(*, ends: bool = False) -> Iterator[None]:
    """A program that was stopped is on its way out: no further signal may break that off.

    Args:
        ends: whether the process ends right afterwards, so that nothing needs to hear of signals
            any more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [
        number
        for number in (getattr(signal, name) for name in names)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    previous = {number: signal.signal(number, _Once()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_IGN if ends else handler)
