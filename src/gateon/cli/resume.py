"""gateon resume."""

from __future__ import annotations

from pathlib import Path

import tyro

from ..parallel.processes import together
from ..runs.folder import held_specification, is_finished
from ..runs.record import Record
from ..runs.specification import Specification
from ..runs.specified import run_specification
from . import printing
from .parse import JSON

__all__ = ["command"]


def command(
    directory: tyro.conf.Positional[Path], as_json: JSON = False, quiet: bool = False
) -> None:
    """Continue an unfinished run as if it had never stopped, or show a finished one.

    Args:
        directory: the directory of the run.
        as_json: print only the record's summary, as JSON.
        quiet: show no progress.
    """
    held = held_specification(directory)
    try:
        options = Specification.from_options(held)
    except ValueError as reason:
        told = str(reason).rstrip(".")
        raise ValueError(
            f"{directory} holds a run that gateon run did not start ({told}): "
            "run the program that started it again."
        ) from reason
    with together(options.training.device) as processes:
        # A finished run is only shown: its directory may be read-only by now.
        if processes.first(lambda: is_finished(directory)):
            record = Record.load(directory / "record.json")
        else:
            progress = printing.progress(quiet or not processes.is_first)
            if processes.is_first:
                progress = printing.with_page(progress, directory)
            record = run_specification(options, directory, progress=progress)
        if processes.is_first:
            printing.record(record, options.method.name, directory, as_json, quiet)
