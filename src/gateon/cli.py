"""The command line: arguments in, the library's own functions, results out. No logic of its own."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

try:
    import tyro
    from rich.console import Console
    from rich.table import Table
except ImportError as missing:  # pragma: no cover
    sys.exit(f"The program needs {missing.name}: pip install 'gateon[program]'.")

from . import streams
from .compare import compare as compare_methods
from .compare import run_specification
from .report import terminal
from .report.figures import compare_figure
from .report.table import summarise
from .run import Interrupted, Quiet
from .specification import METHODS, PRESETS, Specification
from .streams import sources

__all__ = ["main"]

Stream = Annotated[
    str, tyro.conf.Positional, tyro.conf.arg(help="permuted-mnist, rotated-mnist, shuffled-mnist, split-mnist or own:PATH")
]
Options = Annotated[Specification, tyro.conf.arg(name="")]


def run(
    stream: Stream = "",
    /,
    options: tyro.conf.OmitArgPrefixes[Specification] = Specification(),  # noqa: B008 (frozen)
    *,
    out: Path | None = None,
    isolated: bool = False,
    spec: Path | None = None,
    save_spec: Path | None = None,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
    quiet: bool = False,
) -> None:
    """Learn a stream, task after task, and measure what is kept.

    Args:
        stream: the stream.
        options: what to run.
        out: directory of the run, runs/STREAM-METHOD-SEED by default. The same command goes on with an unfinished run.
        isolated: also train a network on each task alone (once), for the accuracy deviation.
        spec: take the options from a TOML file; others given here go before it.
        save_spec: write the options to a TOML file and stop.
        json_: print the summary as JSON and nothing else on standard output.
        quiet: show no progress.
    """


def _nothing() -> None: ...


def main(arguments: list[str] | None = None) -> None:
    """The program."""
    raise SystemExit(0)
