"""The command line: one file per command, which turns arguments into calls of the library.

May import every other room, but holds no logic of its own. To add a command, write `NAME.py` with
a function `command` and describe it in `commands.py`. The module of a command is imported only
when the command is given, so that `gateon --help` does not wait for torch.
"""

from __future__ import annotations

from . import early as early  # isort: skip (first: it covers the time the other imports take)

from .program import main

__all__ = ["main"]
