"""What must be settled before torch is imported, which takes seconds: Ctrl-C and waiting threads.

Programs that merely import gateon are left alone.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

__all__ = ["is_program", "leave"]

# Threads that wait for each other keep their cores busy, for milliseconds by default: with two
# programs on the same cores most of the time goes there, and each is many times slower than alone.
# These let them wait briefly and then sleep: for the OpenMP of GNU, and of Intel and LLVM (in ms).
BRIEF = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
SCRIPTS = ("gateon", "gateon.exe")
MODULES = (["-m", "gateon"], ["-m", "gateon.cli"])


def is_program() -> bool:
    """Whether this process is the program: its script, `python -m gateon` or its `gateon.cli`."""
    script = os.path.basename(sys.argv[0] if sys.argv else "")
    return script in SCRIPTS or sys.orig_argv[1:3] in MODULES


def leave(number: int, frame: Any) -> None:
    """End at once, resumable if a scheduler asks: nothing has begun that could be lost."""
    os.write(2, b"\nStopped.\n")
    os._exit(130 if number == signal.SIGINT else 75)


if is_program() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, leave)
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, leave)

if is_program() and "OMP_WAIT_POLICY" not in os.environ:
    for name, value in BRIEF.items():
        os.environ.setdefault(name, value)
