"""gateon inspect."""

from __future__ import annotations

from pathlib import Path

import tyro

from ..runs.inspection import inspect
from ..storage.files import printable
from .program import ProblemsError

__all__ = ["command"]


def command(directory: tyro.conf.Positional[Path]) -> None:
    """Show what is in the directory of a run, and check that it is intact; if not, exit code 2.

    Args:
        directory: the directory of the run.
    """
    seen = inspect(directory)
    for line in seen.found:
        print(printable(line))
    if seen.wrong:
        raise ProblemsError(seen.wrong)
