"""Ctrl-C while the program is still being imported, which takes seconds: it ends quietly. Other programs are left alone."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

__all__ = ["is_program", "leave"]


def is_program() -> bool:
    """Whether this process is the program gateon: its script, or python -m gateon.cli."""
    return os.path.basename(sys.argv[0] if sys.argv else "") in (
        "gateon",
        "gateon.exe",
    ) or sys.orig_argv[1:3] == [
        "-m",
        "gateon.cli",
    ]


def leave(number: int, frame: Any) -> None:
    """End at once: nothing was begun that could be lost."""
    os.write(2, b"\nStopped.\n")
    os._exit(130)


if is_program() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, leave)
