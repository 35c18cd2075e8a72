"""gateon predict."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..life.answer_files import check_ending, csv_text, write_answers
from ..life.model import LivingModel, opened
from ..storage.files import printable
from .hearing import Hearing
from .parse import Directory, gigabytes

__all__ = ["command"]


def command(
    directory: Directory,
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    out: Path | None = None,
    task: str | None = None,
    text: str | None = None,
    second: str | None = None,
    image: str | None = None,
    data_limit: float | None = None,
    quiet: bool = False,
) -> None:
    """Answer every row: label, probability, task, certainty.

    It also says whether a row looks like any of the tasks. While the model is learning, the
    previous version answers.

    Args:
        directory: of the model.
        data: the file or folder to answer; for texts also the text itself, or - for one text a line
            on standard input.
        out: where to write the answers, a .csv, .tsv, .jsonl or .parquet file; without it they are
            printed as CSV.
        task: the task of all rows; by default each row's is recognised.
        text: the column of texts.
        second: the column of second texts.
        image: the column of images.
        data_limit: gigabytes a file may take once unpacked; 1 by default.
        quiet: print only the answers.
    """
    largest = gigabytes(data_limit)
    if out is not None:
        check_ending(out)
    with Hearing(quiet) as heard:
        living = opened(directory)
        answers = living.predict(
            _source(living, data),
            task,
            text=text,
            second=second,
            image=image,
            largest=largest,
            listener=heard,
        )
    if out is None:
        sys.stdout.write(csv_text(answers))
        return
    write_answers(answers, out)
    strange = int((~answers.known).sum())
    unlike = f", {strange:,} unlike any task" if strange else ""
    print(printable(f"{out}: {len(answers):,} answers{unlike}"))


def _source(living: LivingModel, data: str) -> Any:
    """A path; or texts, where the model reads texts and the words are no path."""
    reads_texts = living.about()["kind"] == "texts"
    if data == "-":
        if not reads_texts:
            raise ValueError("Standard input holds texts, and this model reads none: give a file.")
        return [line.rstrip("\n") for line in sys.stdin]
    if reads_texts and " " in data.strip() and not Path(data).exists():
        return [data]
    return Path(data)
