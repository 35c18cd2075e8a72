"""Stopping between two steps: Ctrl-C, a closed terminal, and a scheduler that reclaims the machine.

Schedulers send SIGTERM, or SIGUSR1 where they were asked to warn beforehand.
"""

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
    """Whether a stop was requested, and how and when.

    Nothing interrupts a checkpoint that is being written.
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

    previous = {number: signal.signal(number, on_signal) for number in _heard()}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            if stop and isinstance(handler, _Once):
                handler.asked = True
            signal.signal(number, handler)


def _heard() -> list[signal.Signals]:
    """The signals that ask to stop, but for those that are ignored, as nohup does with SIGHUP."""
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


class _Once:
    """Does what a signal does by default, at the first one only."""

    asked = False

    def __call__(self, number: int, frame: Any) -> None:
        if self.asked:
            return
        self.asked = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        if number == getattr(signal, "SIGUSR1", None):  # a warning: nothing was begun yet
            raise Terminated
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


@contextmanager
def stop_once(*, ends: bool = False) -> Iterator[None]:
    """A stopped program is shutting down: no further signal may interrupt that.

    Args:
        ends: whether the process ends right afterwards, so that nothing needs to hear of signals
            any more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, _Once()) for number in _heard()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_IGN if ends else handler)
