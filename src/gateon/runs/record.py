"""What a run leaves: the record, as a schema."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np

from ..lazy import late
from ..storage.checkpoint import whole_file
from ..storage.files import content_of
from ..tracing.trace import Trace
from . import metrics
from .as_json import are_times, as_lines, fits
from .identity import NUMERICS
from .tables import packed, unpacked

__all__ = ["MACRO_F1", "SCHEMA", "TRACE", "Record"]

TRACE = "trace.npz"  # beside the record

# 1: every row of a table in full. 2: flat specifications, no command and no numerics.
SCHEMA = 3
LARGEST = 1 << 28  # bytes of a record: that of 5,000 tasks has half as many
# figures a table may have for each byte of its file: rows that were not measured take no room there
SPARSE = 64
# What the measures of accuracy are called where they are of macro-F1.
MACRO_F1 = {
    "immediate_accuracy": "immediate_macro_f1",
    "continual_accuracy": "continual_macro_f1",
    "forgetting_rate": "macro_f1_forgetting_rate",
    "final_accuracy": "final_macro_f1",
    "accuracy_deviation": "macro_f1_deviation",
}


@dataclass
class Record:
    """Everything a run found, and all that is needed to repeat it.

    Args:
        name: of the run.
        specification: what was run.
        data: where the data came from, with its sha256.
        tasks: their names, in order.
        identities: which task each one is; a task that returns keeps its number.
        contexts: the context each task was learned in; where contexts are inferred, the one it
            ended in.
        switches: where contexts are inferred, [task, step, context] of each switch that was found.
        accuracy: accuracy[k][j] on task j after training task k; None where it was not measured.
        macro_f1: the same for macro-F1.
        seconds: for each task, {"train": ..., "evaluate": ...}.
        density: for each task, the share of open gates by site.
        availability: for each task, by site {"frozen": share below 0.05, "room": mean}.
        curves: for each task, [[step, accuracy], ...] within it, where asked for.
        losses: for each task, where contexts are inferred, [[step, loss, suspected], ...] of some
            batches before they were learned: evenly spaced, and all that were suspected, 1 or 0.
        isolated: accuracies of networks that learn one task each, where known.
        isolated_macro_f1: the same for macro-F1.
        labels: for each task, what labels 0, 1, ... are called; empty where they have no names.
        samples: for each task, how many training samples it has.
        shape: of one input.
        classes: how many outputs the network has.
        part: the part of the data it was measured on, "test" or "validation".
        environment: versions, commit, machine, time.
        command: what runs it again; None if it was started from Python.
        numerics: version of the numbers, see `gateon.runs.identity`; older ones are not comparable.
        schema: the version of this format.
    """

    name: str
    specification: dict[str, Any]
    data: dict[str, Any]
    tasks: list[str] = field(default_factory=list)
    identities: list[int] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    switches: list[list[int]] = field(default_factory=list)
    accuracy: list[list[float | None]] = field(default_factory=list)
    macro_f1: list[list[float | None]] = field(default_factory=list)
    seconds: list[dict[str, float]] = field(default_factory=list)
    density: list[dict[str, float]] = field(default_factory=list)
    availability: list[dict[str, dict[str, float]]] = field(default_factory=list)
    curves: list[list[list[float]]] = field(default_factory=list)
    losses: list[list[list[float]]] = field(default_factory=list)
    isolated: list[float] | None = None
    isolated_macro_f1: list[float] | None = None
    labels: list[list[str]] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    shape: list[int] | None = None
    classes: int | None = None
    part: str = "test"
    environment: dict[str, Any] = field(default_factory=dict)
    command: str | None = None
    numerics: int = 1
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Nothing is kept beside a record that was not written yet."""
        self._folder: Path | None = None

    @property
    def trace(self) -> Trace | None:
        """What single units did over time, if the run was asked for it; see `gateon.trace`."""
        path = None if self._folder is None else self._folder / TRACE
        return Trace.load(path) if path is not None and path.exists() else None

    @property
    def plot(self) -> Any:
        """Its figures: matrix(), curves(), availability(), gates(); see `gateon.pages.plots`."""
        return late("pages.plots:RecordPlots")(self)

    def __repr__(self) -> str:
        """Its name, how many tasks, and what became of them."""
        if not self.accuracy:
            return f"<Record {self.name!r}: no task yet>"
        found = self.summary
        return (
            f"<Record {self.name!r}: {len(self.accuracy)} tasks, continual accuracy "
            f"{found['continual_accuracy']:.4f}, forgetting {found['forgetting_rate']:.4f}>"
        )

    def _repr_html_(self) -> str:
        from .shown import record_html

        return record_html(self)

    @property
    def is_old(self) -> bool:
        """Whether the numerics have changed since: do not mix such records with new ones."""
        return self.numerics != NUMERICS

    @property
    def summary(self) -> dict[str, float]:
        """immediate_accuracy, continual_accuracy, forgetting_rate, final_accuracy.

        And accuracy_deviation where `isolated` is known. The same of macro-F1, by the names in
        `MACRO_F1`, if it was measured wherever accuracy was.
        """
        found = metrics.summary(np.array(_square(self.accuracy)), self.isolated)
        if self.macro_f1 and _measured(self.macro_f1) == _measured(self.accuracy):
            of_f1 = metrics.summary(np.array(_square(self.macro_f1)), self.isolated_macro_f1)
            found |= {MACRO_F1[name]: value for name, value in of_f1.items()}
        return found

    def immediate(self, of: Literal["accuracy", "macro_f1"] = "accuracy") -> list[float]:
        """Accuracy or macro-F1 on each task right after it was learned."""
        rows = self.accuracy if of == "accuracy" else self.macro_f1
        return [value for k, row in enumerate(rows) if (value := row[k]) is not None]

    def save(self, path: Path) -> None:
        """Write it as JSON, atomically."""
        tables = {"accuracy": packed(self.accuracy), "macro_f1": packed(self.macro_f1)}
        content = as_lines(asdict(self) | tables | {"summary": self.summary, "schema": SCHEMA})
        with whole_file(path) as aside:
            aside.write_text(content, encoding="utf-8")
        self._folder = path.parent

    @classmethod
    def load(cls, path: Path) -> Record:
        """Read a record; one of a newer format, or no record at all, is an error."""
        try:
            text = content_of(path, LARGEST).decode()
            content = json.loads(text)
            schema = content["schema"]
            if type(schema) is not int:
                raise TypeError("its schema is no number")
            if schema > SCHEMA:
                raise _NewerError(
                    f"{path} has schema {schema}, this gateon reads up to {SCHEMA}: "
                    "update gateon to read it."
                )
            for name in ("accuracy", "macro_f1"):
                content[name] = unpacked(content.get(name, []), SPARSE * len(text))
            record = cls(**{f.name: content[f.name] for f in fields(cls) if f.name in content})
            _check(record)
            record.summary  # noqa: B018 (a record whose figures cannot be read is a damaged one)
        except _NewerError:
            raise
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ) as reason:
            raise ValueError(
                f"{path} is not a gateon record, or it is damaged: move it away."
            ) from reason
        record._folder = path.parent
        return record


class _NewerError(ValueError):
    pass


def _check(record: Record) -> None:
    """Refuse what is not of the annotated kind, and tables with gaps."""
    for name, hint in get_type_hints(Record).items():
        if not fits(getattr(record, name), hint):
            raise TypeError(f"its {name} are of another kind")
    if not are_times(record.seconds):
        raise ValueError("its seconds are no times")
    for rows in (record.accuracy, record.macro_f1):
        if any(not k < len(row) <= len(rows) for k, row in enumerate(rows)):
            raise ValueError("its tables have gaps")


def _measured(matrix: list[list[float | None]]) -> list[list[bool]]:
    return [[value is not None for value in row] for row in matrix]


def _square(rows: list[list[float | None]]) -> list[list[float]]:
    """Every row as long as there are rows; what was not measured is NaN."""
    return [
        [math.nan if value is None else value for value in row]
        + [math.nan] * (len(rows) - len(row))
        for row in rows
    ]
