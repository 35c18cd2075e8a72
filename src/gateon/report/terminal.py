"""Runs on a terminal: progress while they run, the accuracy matrix when they are done."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate

from rich.console import Console, RenderableType
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from ..markup import some
from ..runs.record import Record
from ..storage.files import printable
from .fitting import fitted
from .table import COLUMNS, percent

__all__ = ["Lines", "Live", "inferred", "legend", "matrix", "progress_for", "table"]

STEPS = (0.0, 0.01, 0.05, 0.2, 0.5)  # of forgetting: those of the legend; the last is the darkest


class Lines:
    """Progress as one line per task, for logs and pipes.

    It goes to standard error, so that standard output holds only results.
    """

    def begin(self, name: str, steps: Sequence[int], at: int) -> None:
        """Announce the run."""
        self.steps, self.at = steps, at
        self.loss: float | None = None
        self.start = time.monotonic()
        print(heading(name, steps, at), file=sys.stderr, flush=True)

    def step(self, task: int, step: int, loss: float) -> None:
        """Keep the loss."""
        self.loss = loss

    def found(self, task: int, step: int, context: int, new: bool) -> None:
        """Print a context that was inferred."""
        print(f"  {inferred(self.steps, task, step, context, new)}", file=sys.stderr, flush=True)

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """Print the results of a task."""
        known = [a for a in accuracies if a is not None]
        done, rate = sum(self.steps[: task + 1]), self.steps[task] / max(seconds, 1e-9)
        left = (time.monotonic() - self.start) / max(done - self.at, 1) * (sum(self.steps) - done)
        # A run resumed after a task's last step has seen no loss.
        loss = "" if self.loss is None else f"loss {self.loss:.3f}, "
        print(
            f"  task {task + 1}/{len(self.steps)} {printable(name)}: {loss}"
            f"accuracy {100 * known[-1]:.2f}, "
            f"mean of {len(known)} so far {100 * sum(known) / len(known):.2f}, "
            f"{seconds:.1f} s ({rate:.{0 if rate >= 10 else 1}f} steps/s), {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None:
        """Do nothing."""


class Live:
    """A progress bar with rate and time left, within 80 columns.

    If the terminal is closed it shows nothing, and the run continues.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def begin(self, name: str, steps: Sequence[int], at: int) -> None:
        """Show the bar."""
        self.steps, self.at, self.accuracy = steps, at, ""
        self.shown, self.begun = 0.0, time.monotonic()
        title = heading(name, steps, at)
        with suppress(OSError):
            self.console.print(title, markup=False, highlight=False, soft_wrap=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=6),
            TimeRemainingColumn(compact=True),
        )
        self.bar = Bar(*columns, console=self.console, transient=True)
        self.id = self.bar.add_task("task 1", total=sum(steps), completed=at)
        with suppress(OSError):
            self.bar.start()

    def step(self, task: int, step: int, loss: float) -> None:
        """Update the bar, a few times per second."""
        now = time.monotonic()
        if now - self.shown > 0.2 or step == self.steps[task]:
            done = sum(self.steps[:task]) + step
            rate = (done - self.at) / max(now - self.begun, 1e-9)
            place = f"task {task + 1}/{len(self.steps)}  step {step}/{self.steps[task]}"
            shown = f"{place}  loss {loss:.3f}{self.accuracy}  {rate:.{0 if rate >= 10 else 1}f}/s"
            with suppress(OSError):
                self.bar.update(self.id, completed=done, description=shown)
            self.shown = now

    def found(self, task: int, step: int, context: int, new: bool) -> None:
        """Print a context that was inferred, above the bar."""
        with suppress(OSError):
            told = inferred(self.steps, task, step, context, new)
            self.bar.console.print(f"  {told}", markup=False, highlight=False)

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """Show the mean accuracy so far."""
        known = [a for a in accuracies if a is not None]
        self.accuracy = f"  accuracy {100 * sum(known) / len(known):.2f}"

    def end(self) -> None:
        """Remove the bar."""
        with suppress(OSError):
            self.bar.stop()


def heading(name: str, steps: Sequence[int], at: int) -> str:
    """One line that announces a run.

    Args:
        name: The name of the run.
        steps: The number of steps of each task.
        at: The step in total at which it resumes; 0 for a new run.

    >>> heading("split-mnist n-gateon", [100] * 5, 250)
    'split-mnist n-gateon: 5 tasks of 100 steps, resuming at task 3, step 50'
    >>> heading("asc n-gateon", [20, 48], 0)
    'asc n-gateon: 2 tasks of 20 to 48 steps'
    """
    least, most = min(steps), max(steps)
    length = f"{least}" if least == most else f"{least} to {most}"
    begun = [start for start in accumulate(steps, initial=0) if start <= at]
    where = f", resuming at task {len(begun)}, step {at - begun[-1]}" if at else ""
    return f"{printable(name)}: {len(steps)} tasks of {length} steps{where}"


def inferred(steps: Sequence[int], task: int, step: int, context: int, new: bool) -> str:
    """What is said of a context that was inferred.

    >>> inferred([50, 50], 1, 4, 1, True)
    'task 2/2, step 5: a switch to a new context, 1'
    >>> inferred([50, 50, 50], 2, 0, 0, False)
    'task 3/3, step 1: a switch back to context 0'
    """
    what = f"to a new context, {context}" if new else f"back to context {context}"
    return f"task {task + 1}/{len(steps)}, step {step + 1}: a switch {what}"


def progress_for(console: Console) -> Lines | Live:
    """A progress bar on a terminal, lines elsewhere."""
    return Live(console) if console.is_terminal and not console.is_dumb_terminal else Lines()


def matrix(record: Record, width: int = 80) -> Text:
    """The accuracy matrix: one row per task learned, one column per task tested.

    A cell is coloured by what was forgotten of its task since that was learned.

    Args:
        record: The record of a run.
        width: The number of columns; if not all tasks fit, some are left out evenly, and it says so.

    >>> print(matrix(Record("demo", {}, {}, accuracy=[[1.0], [0.5, 0.99]])).plain)
    demo
      after   1   2
          1 100
          2  50  99
    """
    tasks = some(len(record.accuracy), (width - 8) // 4)
    text = Text(f"{printable(record.name)}\n", style="bold")
    text.append("  after " + " ".join(f"{j + 1:3}" for j in tasks), style="default not bold")
    for k in tasks:
        text.append(f"\n  {k + 1:5}", style="default not bold")
        for j in tasks[: tasks.index(k) + 1]:
            value, learned = record.accuracy[k][j], record.accuracy[j][j]
            text.append(" ")
            cell = "  ." if value is None else f"{100 * value:3.0f}"
            lost = None if value is None or learned is None or j == k else learned - value
            text.append(cell, style=_plain(value) if lost is None else _colour(lost))
    if len(tasks) < len(record.accuracy):
        note = f"\n  {len(tasks)} of {len(record.accuracy)} tasks; report.html shows all"
        text.append(note, style="dim not bold")
    return text


def legend() -> Text:
    """What the colours of the matrix mean, in these colours."""
    text = Text("  points lost since a task was learned: ", style="dim")
    for lost in STEPS:
        text.append(f" {100 * lost:.0f} ", style=_colour(lost))
    return text


def table(
    summary: Mapping[str, Mapping[str, tuple[float, float]]], seeds: int, width: int = 80
) -> RenderableType:
    """A summary of several methods as a table; columns that do not fit beside go below.

    Args:
        summary: What `summarise` returned.
        seeds: The number of seeds.
        width: The number of columns of the terminal.
    """
    names = [name for name in COLUMNS if any(name in row for row in summary.values())]
    rows = [
        [
            method,
            *(percent(row.get(name), seeds).replace(" ± ", "±") for name in names),
            f"{row['seconds'][0]:.0f}",
        ]
        for method, row in summary.items()
    ]
    return fitted(["method", *(COLUMNS[name] for name in names), "seconds"], rows, width)


def _plain(value: float | None) -> str:
    """The style of a cell where nothing was forgotten yet, or nothing measured."""
    return "dim" if value is None else "bold"


def _colour(lost: float) -> str:
    """A background from green, where nothing was forgotten, through yellow to dark red."""
    share = max(0.0, min(1.0, lost / STEPS[-1]))
    red, green = (int(400 * share), 150) if share < 0.5 else (200, int(300 * (1 - share)))
    return f"bold white on rgb({min(red, 200)},{green},40)"
