"""Many runs at once on a terminal: one live table of all of them, or lines where there is none."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..storage.files import printable
from .terminal import heading, inferred

__all__ = ["ManyLines", "ManyLive", "many_for"]

SHOWN = 20  # runs at once
ENDS = {
    "done": "finished",
    "dropped": "ended early",
    "stopped": "saved",
    "busy": "waits for its directory",
    "failed": "failed",
    "died": "its worker ended: begins again where it was saved",
    "lost": "its node is gone: begins again where it was saved",
}


@dataclass
class _Run:
    """Where a run is."""

    steps: Sequence[int]
    at: int
    done: int = 0
    task: int = 0
    loss: float | None = None
    accuracies: list[float] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def hear(self, event: str, told: Sequence[Any]) -> None:
        """Follow a report."""
        if event == "step":
            self.task, step, self.loss = told
            self.done = sum(self.steps[: self.task]) + step
        elif event == "task":
            self.task = told[0]
            self.done = sum(self.steps[: self.task + 1])
            self.accuracies = [value for value in told[2] if value is not None]

    @property
    def accuracy(self) -> str:
        """Its mean over the tasks so far, in percent."""
        known = self.accuracies
        return f"{100 * sum(known) / len(known):.2f}" if known else ""

    @property
    def left(self) -> str:
        """Seconds to its end, as far as its pace tells."""
        learned, rest = self.done - self.at, sum(self.steps) - self.done
        if learned <= 0:
            return ""
        return f"{(time.monotonic() - self.begun) / learned * rest:.0f} s"


class ManyLines:
    """A line for every task of every run, on standard error."""

    def open(self, pieces: int) -> None:
        """Remember how many there are."""
        self.pieces, self.over = pieces, 0
        self.runs: dict[str, _Run] = {}

    def told(self, name: str, event: str, told: Sequence[Any]) -> None:
        """Print what begins, and what a task led to."""
        if event == "begin":
            self.runs[name] = _Run(told[1], told[2], told[2])
            self._print(f"{printable(name)} begins: {heading(*told)}")
        elif name in self.runs:
            run = self.runs[name]
            run.hear(event, told)
            if event == "found":
                self._print(f"{printable(name)}: {inferred(run.steps, *told)}")
            if event == "task":
                self._print(
                    f"{printable(name)}: task {run.task + 1}/{len(run.steps)}, accuracy "
                    f"{100 * run.accuracies[-1]:.2f}, mean so far {run.accuracy}, {run.left} left"
                )

    def ended(self, name: str, how: str) -> None:
        """Print how a run ended, and how many have."""
        self.over += how in ("done", "dropped")
        self._print(f"{printable(name)} {ENDS[how]} ({self.over} of {self.pieces} over)")

    def note(self, text: str) -> None:
        """Print it."""
        self._print(printable(text))

    def close(self) -> None:
        """Nothing more to say."""

    def _print(self, text: str) -> None:
        with suppress(OSError):
            print(text, file=sys.stderr, flush=True)


class ManyLive:
    """One table of the runs at work, kept up to date; what ended is a line above it."""

    def __init__(self, console: Console) -> None:
        self.live = Live(console=console, transient=True, auto_refresh=False)
        self.shown = 0.0

    def open(self, pieces: int) -> None:
        """Show an empty table."""
        self.pieces, self.over = pieces, 0
        self.runs: dict[str, _Run] = {}
        with suppress(OSError):
            self.live.start()

    def told(self, name: str, event: str, told: Sequence[Any]) -> None:
        """Follow a run."""
        if event == "begin":
            self.runs[name] = _Run(told[1], told[2], told[2])
        elif name in self.runs:
            self.runs[name].hear(event, told)
            if event == "found":
                self.note(f"{name}: {inferred(self.runs[name].steps, *told)}")
        self._refresh(often=event != "step")

    def ended(self, name: str, how: str) -> None:
        """Take it from the table, and leave a line."""
        self.over += how in ("done", "dropped")
        run = self.runs.pop(name, None)
        accuracy = f", accuracy {run.accuracy}" if run is not None and run.accuracy else ""
        self.note(f"{name} {ENDS[how]}{accuracy}")

    def note(self, text: str) -> None:
        """A line above the table."""
        with suppress(OSError):
            self.live.console.print(printable(text), markup=False, highlight=False)
        self._refresh(often=True)

    def close(self) -> None:
        """Take the table away."""
        with suppress(OSError):
            self.live.stop()

    def _refresh(self, often: bool) -> None:
        now = time.monotonic()
        if often or now - self.shown > 0.25:
            self.shown = now
            with suppress(OSError):
                self.live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column(f"{self.over} of {self.pieces} over", overflow="ellipsis", no_wrap=True)
        for title in ("task", "step", "loss", "accuracy", "left"):
            table.add_column(title, justify="right", no_wrap=True)
        for name, run in list(self.runs.items())[:SHOWN]:
            table.add_row(
                Text(printable(name)),
                f"{min(run.task + 1, len(run.steps))}/{len(run.steps)}",
                f"{run.done}/{sum(run.steps)}",
                "" if run.loss is None else f"{run.loss:.3f}",
                run.accuracy,
                run.left,
            )
        if len(self.runs) > SHOWN:
            table.add_row(f"and {len(self.runs) - SHOWN} more")
        return table


def many_for(console: Console) -> ManyLines | ManyLive:
    """A live table on a terminal, lines elsewhere."""
    alive = console.is_terminal and not console.is_dumb_terminal
    return ManyLive(console) if alive else ManyLines()
