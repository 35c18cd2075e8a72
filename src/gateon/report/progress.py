"""Progress that suits where a run is started: in a notebook, on a terminal, or in a log."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Sequence
from typing import Any

from ..runs.progress import Progress

__all__ = ["InNotebook", "in_notebook", "progress"]

OFTEN = 0.25  # least seconds between two pictures


def progress() -> Progress:
    """A display for `gateon.run(..., progress=gateon.progress())`.

    In a notebook a bar below the cell; on a terminal a bar; elsewhere a line for every task, on
    standard error.

    >>> type(progress()).__name__ in ("InNotebook", "Live", "Lines")
    True
    """
    if in_notebook():
        return InNotebook()
    try:
        from rich.console import Console

        from .terminal import progress_for
    except ImportError as missing:
        raise ImportError(
            f"Progress outside a notebook needs {missing.name}: pip install 'gateon[program]'."
        ) from missing
    return progress_for(Console(stderr=True))


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook.

    >>> in_notebook()
    False
    """
    interactive = sys.modules.get("IPython")
    shell = None if interactive is None else interactive.get_ipython()
    return getattr(shell, "kernel", None) is not None


class InNotebook:
    """A bar below the cell, which stays there with the result."""

    def begin(self, name: str, steps: Sequence[int], at: int) -> None:
        """Show the bar."""
        self.name, self.steps, self.at, self.done = name, steps, at, at
        self.said: list[str] = []  # contexts that were inferred
        self.now, self.accuracy = "", ""
        self.begun, self.shown = time.monotonic(), 0.0
        self.handle: Any = _display(self._picture())

    def step(self, task: int, step: int, loss: float) -> None:
        """Move the bar, a few times a second."""
        self.done = sum(self.steps[:task]) + step
        self.now = (
            f"task {task + 1}/{len(self.steps)}, step {step}/{self.steps[task]}, loss {loss:.3f}"
        )
        if time.monotonic() - self.shown > OFTEN:
            self._show()

    def found(self, task: int, step: int, context: int, new: bool) -> None:
        """Say which context was inferred."""
        what = f"a new context, {context}" if new else f"context {context} again"
        self.said.append(f"task {task + 1}, step {step + 1}: {what}")
        self._show()

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """Show the mean accuracy so far."""
        known = [value for value in accuracies if value is not None]
        self.accuracy = f", mean accuracy of {len(known)} tasks {100 * sum(known) / len(known):.2f}"
        self._show()

    def end(self) -> None:
        """Leave the last picture."""
        self._show()

    def _show(self) -> None:
        self.shown = time.monotonic()
        self.handle.update(_markup(self._picture()))

    def _picture(self) -> str:
        total, took = sum(self.steps), time.monotonic() - self.begun
        over = self.done >= total
        left = took / max(self.done - self.at, 1) * (total - self.done)
        times = f"{took:.0f} s" if over or self.done == self.at else f"{left:.0f} s left"
        words = ["" if over else self.now, self.accuracy.removeprefix(", " if over else ""), times]
        last = "".join(f"<div>{html.escape(one)}</div>" for one in self.said[-5:])
        return (
            f"<div><b>{html.escape(self.name)}</b> "
            f'<progress value="{self.done}" max="{total}"></progress> '
            f"{html.escape(' '.join(filter(None, words)))}{last}</div>"
        )


def _display(picture: str) -> Any:
    from IPython.display import display

    return display(_markup(picture), display_id=True)  # type: ignore[no-untyped-call,unused-ignore]


def _markup(picture: str) -> Any:
    from IPython.display import HTML

    return HTML(picture)  # type: ignore[no-untyped-call,unused-ignore]
