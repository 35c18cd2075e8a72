"""Answers as a file: CSV, TSV, JSON lines or Parquet, by the ending of its name."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from ..runs.answers import COLUMNS, Answers
from ..storage.checkpoint import whole_file

__all__ = ["check_ending", "csv_text", "write_answers"]

DELIMITERS = {".csv": ",", ".tsv": "\t"}
ENDINGS = (*DELIMITERS, ".jsonl", ".parquet")


def check_ending(path: Path) -> None:
    """Refuse a file name that does not end in a known format.

    >>> check_ending(Path("answers.docx"))
    Traceback (most recent call last):
    ...
    ValueError: answers.docx names no format: end it with .csv, .tsv, .jsonl, .parquet.
    """
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"{path} names no format: end it with {', '.join(ENDINGS)}.")


def write_answers(answers: Answers, path: Path) -> None:
    """Write one row for each sample, in their order, whole or not at all."""
    check_ending(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    ending = path.suffix.lower()
    with whole_file(path) as aside:
        if ending == ".parquet":
            _write_parquet(answers, aside)
        elif ending == ".jsonl":
            lines = (json.dumps(row, ensure_ascii=False) for row in _rows(answers))
            aside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        else:
            aside.write_text(csv_text(answers, DELIMITERS[ending]), encoding="utf-8", newline="")


def csv_text(answers: Answers, delimiter: str = ",") -> str:
    r"""The answers as CSV, with a header.

    >>> import numpy as np
    >>> one = Answers(["a"], np.array([0.5]), ["t"], np.array([1.0]), np.array([True]))
    >>> csv_text(one)
    'label,probability,task,certainty,known\na,0.5,t,1.0,yes\n'
    """
    sink = io.StringIO()
    writer = csv.writer(sink, delimiter=delimiter, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in _rows(answers):
        row["known"] = "yes" if row["known"] else "no"
        writer.writerow(row.values())
    return sink.getvalue()


def _rows(answers: Answers) -> list[dict[str, str | float | bool]]:
    return [
        {
            "label": answer.label,
            "probability": round(answer.probability, 4),
            "task": answer.task,
            "certainty": round(answer.certainty, 4),
            "known": answer.known,
        }
        for answer in answers
    ]


def _write_parquet(answers: Answers, path: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            "Writing Parquet needs pyarrow: pip install 'gateon[tables]', or write CSV."
        ) from error
    parquet.write_table(pyarrow.Table.from_pylist(_rows(answers)), path)
