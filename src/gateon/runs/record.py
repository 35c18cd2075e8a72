"""What a run leaves: the record, as a schema."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import torch

from ..storage.checkpoint import whole_file
from ..storage.files import content_of
from . import metrics
from .identity import NUMERICS, commit

__all__ = ["MACRO_F1", "SCHEMA", "Record", "are_times", "environment", "fits", "packed", "unpacked"]

# 1: every row of a table in full. 2: flat specifications, no command and no numerics.
SCHEMA = 3
LARGEST = 1 << 28  # bytes of a record: that of 5,000 tasks has half as many
WHOLE = 1 << 64  # of any whole number in it: far larger ones are no floats any more
# figures a table may have for each byte of its file: rows that were not measured take no room there
SPARSE = 64
SKIP, THEN = "skip", "then"  # {"skip": 3, "then": [0.9]} stands for [null, null, null, 0.9]
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
    """Everything a run found, and all that is needed to run it again.

    Args:
        name: of the run.
        specification: what was asked for.
        data: where the data came from, with its sha256.
        tasks: their names, in order.
        identities: which task each one is; one that returns has the number it had before.
        contexts: the context each task was learned in; where contexts are inferred, the one it
            ended in.
        switches: where contexts are inferred, [task, step, context] of each switch that was found.
        accuracy: accuracy[k][j] on task j after training task k; None where it was not measured.
        macro_f1: the same for macro-F1.
        seconds: for each task, {"train": ..., "evaluate": ...}.
        density: for each task, the share of open gates by site.
        availability: for each task, by site {"frozen": share below 0.05, "room": mean}.
        curves: for each task, [[step, accuracy], ...] within it, where asked for.
        isolated: accuracies of networks that learn one task each, where known.
        isolated_macro_f1: the same for macro-F1.
        part: the part of the data it was measured on, "test" or "validation".
        environment: versions, commit, machine, time.
        command: what runs it again; None where it was begun from Python.
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
    isolated: list[float] | None = None
    isolated_macro_f1: list[float] | None = None
    part: str = "test"
    environment: dict[str, Any] = field(default_factory=dict)
    command: str | None = None
    numerics: int = 1
    schema: int = SCHEMA

    @property
    def is_old(self) -> bool:
        """Whether this gateon would find other numbers: such records must not be mixed with new."""
        return self.numerics != NUMERICS

    @property
    def summary(self) -> dict[str, float]:
        """immediate_accuracy, continual_accuracy, forgetting_rate, final_accuracy; accuracy_deviation where isolated is known.

        The same of macro-F1, if it was measured wherever accuracy was: see `MACRO_F1` for what they
        are called.
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
        """Write it as JSON, whole or not at all."""
        tables = {"accuracy": packed(self.accuracy), "macro_f1": packed(self.macro_f1)}
        content = _lines(asdict(self) | tables | {"summary": self.summary, "schema": SCHEMA})
        with whole_file(path) as aside:
            aside.write_text(content, encoding="utf-8")

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
                    f"{path} has schema {schema}, this gateon reads up to {SCHEMA}: update gateon to read it."
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
                f"{path} is no record of gateon, or a damaged one: move it away."
            ) from reason
        return record


class _NewerError(ValueError):
    pass


def packed(rows: list[list[float | None]]) -> list[Any]:
    """Rows of a table without what was not measured at their beginning, so that a run that measures little keeps little.

    >>> packed([[0.9], [None, 0.8], [None, None, 0.7]])
    [[0.9], [None, 0.8], {'skip': 2, 'then': [0.7]}]
    """
    skipped = [
        next((j for j, value in enumerate(row) if value is not None), len(row)) for row in rows
    ]
    return [
        row if skip < 2 else {SKIP: skip, THEN: row[skip:]}
        for row, skip in zip(rows, skipped, strict=True)
    ]


def unpacked(rows: Any, most: int) -> Any:
    """What `packed` was given, and rows that are in full as they are; more figures than `most` are refused.

    >>> unpacked([[0.9], [None, 0.8], {"skip": 2, "then": [0.7]}], most=100)
    [[0.9], [None, 0.8], [None, None, 0.7]]
    """
    if not isinstance(rows, list):
        return rows
    full: list[Any] = []
    for row in rows:
        if isinstance(row, dict):
            skip, then = row[SKIP], row[THEN]
            if (
                type(skip) is not int
                or not 0 <= skip < len(rows)
                or not isinstance(then, list)
                or skip > most
            ):
                raise ValueError("its tables have gaps")
            row, most = [None] * skip + then, most - skip
        full.append(row)
    return full


def _lines(content: dict[str, Any]) -> str:
    """JSON with an entry a line, so that people can read it: of lists each item, of tables each row."""
    lines = []
    for name, value in content.items():
        shown = json.dumps(value)
        if isinstance(value, list) and value:
            shown = "[\n  " + ",\n  ".join(json.dumps(item) for item in value) + "\n ]"
        elif isinstance(value, dict) and value:
            shown = (
                "{\n  "
                + ",\n  ".join(
                    f"{json.dumps(key)}: {json.dumps(item)}" for key, item in value.items()
                )
                + "\n }"
            )
        lines.append(f" {json.dumps(name)}: {shown}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _check(record: Record) -> None:
    """Refuse what is not of the annotated kind, and tables that would take more room than the file did."""
    for name, hint in get_type_hints(Record).items():
        if not fits(getattr(record, name), hint):
            raise TypeError(f"its {name} are of another kind")
    if not are_times(record.seconds):
        raise ValueError("its seconds are no times")
    for rows in (record.accuracy, record.macro_f1):
        if any(not k < len(row) <= len(rows) for k, row in enumerate(rows)):
            raise ValueError("its tables have gaps")


def are_times(seconds: list[dict[str, float]]) -> bool:
    """Whether these are the seconds of tasks.

    >>> are_times([{"train": 1.5, "evaluate": 0.1}]), are_times([{"train": 1.5}])
    (True, False)
    """
    return all(
        one.keys() == {"train", "evaluate"} and all(0 <= value < math.inf for value in one.values())
        for one in seconds
    )


def fits(value: Any, kind: Any) -> bool:
    """Whether a value read from JSON is what an annotation says.

    >>> fits([{"train": 1}], list[dict[str, float]]), fits([None], list[float])
    (True, False)
    """
    if kind is Any:
        return True
    if get_origin(kind) is list:
        return isinstance(value, list) and _all_fit(value, get_args(kind)[0])
    if get_origin(kind) is dict:
        return isinstance(value, dict) and _all_fit(value.values(), get_args(kind)[1])
    if get_origin(kind) is UnionType:
        return any(fits(value, part) for part in get_args(kind))
    return type(value) in PLAIN[kind] and (type(value) is not int or abs(value) <= WHOLE)


# what JSON has for each
PLAIN: dict[Any, set[Any]] = {
    float: {float, int},
    int: {int},
    str: {str},
    NoneType: {NoneType},
}


def _all_fit(values: Collection[Any], kind: Any) -> bool:
    """At once where only their types count: a table of a thousand tasks has half a million figures."""
    kinds = get_args(kind) if get_origin(kind) is UnionType else (kind,)
    if all(one in PLAIN for one in kinds):
        found = set(map(type, values))
        allowed = set().union(*(PLAIN[one] for one in kinds))
        return found <= allowed and (
            int not in found or all(abs(value) <= WHOLE for value in values if type(value) is int)
        )
    return all(fits(item, kind) for item in values)


def _measured(matrix: list[list[float | None]]) -> list[list[bool]]:
    return [[value is not None for value in row] for row in matrix]


def _square(rows: list[list[float | None]]) -> list[list[float]]:
    """Every row as long as there are rows; what was not measured is NaN."""
    return [
        [math.nan if value is None else value for value in row]
        + [math.nan] * (len(rows) - len(row))
        for row in rows
    ]


def environment() -> dict[str, object]:
    """Where and with what a figure was made: versions, commit, machine, time.

    >>> sorted(environment())
    ['commit', 'cores', 'machine', 'processor', 'python', 'threads', 'time', 'versions']
    """
    return {
        "versions": {name: _version(name) for name in ("gateon", "torch", "numpy", "safetensors")},
        "python": platform.python_version(),
        "commit": commit(),
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
