"""What a living model reports, on a terminal or in a log."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import Progress as Bar

from ..storage.files import printable

__all__ = ["Hearing"]


class Hearing:
    """Sentences and a progress bar on standard error; asks for names if someone can answer.

    Args:
        quiet: essential messages only.
    """

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.console = quiet, Console(stderr=True)
        self._bar: Bar | None = None
        self._what = ""

    def say(self, words: str) -> None:
        """A sentence."""
        if not self.quiet:
            self.console.print(printable(words), markup=False, highlight=False, soft_wrap=True)

    def progress(self, what: str, done: int, total: int | None) -> None:
        """Move the bar; another beginning of the description is another bar."""
        if self.quiet or not self.console.is_terminal:
            return
        subject = what.partition(":")[0]
        if self._bar is None or subject != self._what:
            self.close()
            self._bar, self._what = Bar(console=self.console, transient=True), subject
            self._bar.add_task(what, total=total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], description=what, completed=done, total=total)
        if done == total:
            self.close()

    def name(self, suggestion: str) -> str:
        """Ask for the name of a new task if someone can answer; else say what it is called."""
        self.close()
        if sys.stdin.isatty() and self.console.is_terminal:
            self.console.print(f"What is it called? [{suggestion}] ", markup=False, end="")
            return input().strip() or suggestion
        self.say(
            f"No one can be asked for its name, so it is called {suggestion}; --task names it."
        )
        return suggestion

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> Hearing:
        """Begin to listen."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        self.close()
