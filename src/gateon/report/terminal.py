"""Runs on a terminal: progress while they go, the accuracy matrix as a picture when they are done."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from ..record import Record
from .table import COLUMNS, percent

__all__ = ["Lines", "Live", "matrix", "progress_for", "table"]


class Lines:
    """One line a task, for logs and pipes; on standard error, so that standard output holds results only."""

    def begin(self, name: str, tasks: int, steps: int, at: int) -> None:
        """Say what begins."""
        self.tasks, self.start = tasks, time.monotonic()
        print(f"{name}: {tasks} tasks of {steps} steps" + (f", going on at step {at}" if at else ""), file=sys.stderr, flush=True)

    def step(self, task: int, step: int, loss: float) -> None:
        """Keep the loss."""
        self.loss = loss

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """Say how the task went."""
        known = [a for a in accuracies if a is not None]
        left = (time.monotonic() - self.start) / (task + 1) * (self.tasks - task - 1)
        print(
            f"  task {task + 1}/{self.tasks} {name}: loss {self.loss:.3f}, accuracy {100 * known[-1]:.2f}, "
            f"mean of {len(known)} so far {100 * sum(known) / len(known):.2f}, {seconds:.1f} s, {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )

    def end(self, record: Record) -> None:
        """Nothing more."""


class Live:
    """A bar with rate and time left."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def begin(self, name: str, tasks: int, steps: int, at: int) -> None:
        """Show the bar."""
        self.tasks, self.steps, self.shown = tasks, steps, 0.0
        self.text = "first task"
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.bar = Bar(*columns, console=self.console, transient=True)
        self.id = self.bar.add_task(name, total=tasks * steps, completed=at)
        self.name, self.at, self.begun = name, at, time.monotonic()
        self.bar.start()

    def step(self, task: int, step: int, loss: float) -> None:
        """Move it, a few times a second."""
        now = time.monotonic()
        if now - self.shown > 0.2 or step == self.steps:
            done = task * self.steps + step
            rate = (done - self.at) / max(now - self.begun, 1e-9)
            words = f"{self.name}  task {task + 1}/{self.tasks}  loss {loss:.3f}  {self.text}  {rate:.0f} steps/s"
            self.bar.update(self.id, completed=done, description=words)
            self.shown = now

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """Show the accuracy so far."""
        known = [a for a in accuracies if a is not None]
        self.text = f"accuracy {100 * sum(known) / len(known):.2f}"

    def end(self, record: Record) -> None:
        """Take the bar away."""
        self.bar.stop()


def progress_for(console: Console) -> Lines | Live:
    """A bar on a terminal, lines elsewhere."""
    return Live(console) if console.is_terminal else Lines()


def matrix(record: Record) -> Text:
    """accuracy[k][j] as a picture: a row for each task learned, a column for each task tested; bright is right.

    >>> print(matrix(Record("demo", {}, {}, accuracy=[[1.0], [0.5, 0.99]])).plain)
    demo
      after   1   2
          1 100
          2  50  99
    """
    rows = record.accuracy
    text = Text(f"{record.name}\n", style="bold")
    text.append("  after " + " ".join(f"{j + 1:3}" for j in range(len(rows))) + "\n", style="default not bold")
    for k, row in enumerate(rows):
        text.append(f"  {k + 1:5} ", style="default not bold")
        for n, value in enumerate(row):
            text.append(" " if n else "")
            cell = "  ." if value is None else f"{100 * value:3.0f}"
            text.append(cell, style="dim" if value is None else _colour(value))
        if k < len(rows) - 1:
            text.append("\n")
    return text


def table(summary: Mapping[str, Mapping[str, tuple[float, float]]], seeds: int) -> Table:
    """The figures of several methods."""
    names = [name for name in COLUMNS if any(name in row for row in summary.values())]
    shown = Table("method", *(COLUMNS[name] for name in names), "seconds")
    for method, row in summary.items():
        shown.add_row(method, *(percent(row.get(name), seeds) for name in names), f"{row['seconds'][0]:.0f}")
    return shown


def _colour(value: float) -> str:
    """From dark red at chance over yellow to green at 1."""
    share = max(0.0, min(1.0, value)) ** 2
    red, green = (200, int(330 * share)) if share < 0.5 else (int(400 * (1 - share)), 165)
    return f"bold white on rgb({min(red, 255)},{min(green, 255)},40)"
