"""What a run leaves: the record, as a schema."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch

from . import metrics
from .checkpoint import whole_file

__all__ = ["MACRO_F1", "SCHEMA", "Record", "environment"]

SCHEMA = 1
LARGEST = 1 << 28  # bytes of a record: that of 5,000 tasks has half as many
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
        contexts: the context each task was learned in; where contexts are inferred, the one it ended in.
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
    schema: int = SCHEMA

    @property
    def summary(self) -> dict[str, float]:
        """immediate_accuracy, continual_accuracy, forgetting_rate, final_accuracy; accuracy_deviation where isolated is known.

        The same of macro-F1, if it was measured wherever accuracy was: see `MACRO_F1` for what they are called.
        """
        found = metrics.summary(_square(self.accuracy), self.isolated)
        if self.macro_f1 and _measured(self.macro_f1) == _measured(self.accuracy):
            of_f1 = metrics.summary(_square(self.macro_f1), self.isolated_macro_f1)
            found |= {MACRO_F1[name]: value for name, value in of_f1.items()}
        return found

    def immediate(self, of: Literal["accuracy", "macro_f1"] = "accuracy") -> list[float]:
        """Accuracy or macro-F1 on each task right after it was learned."""
        rows = self.accuracy if of == "accuracy" else self.macro_f1
        return [value for k, row in enumerate(rows) if (value := row[k]) is not None]

    def save(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        content = json.dumps(asdict(self) | {"summary": self.summary}, indent=1) + "\n"
        with whole_file(path) as aside:
            aside.write_text(content, encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Record:
        """Read a record; one of a newer format, or no record at all, is an error."""
        try:
            if Path(path).stat().st_size > LARGEST:
                raise ValueError("it is too large")
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            schema = content["schema"]
            if type(schema) is not int:
                raise TypeError("its schema is no number")
            if schema > SCHEMA:
                raise _NewerError(f"{path} has schema {schema}, this gateon reads up to {SCHEMA}: update gateon to read it.")
            record = cls(**{f.name: content[f.name] for f in fields(cls) if f.name in content})
            _check(record)
            record.summary  # noqa: B018 (a record whose figures cannot be read is a damaged one)
        except _NewerError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as reason:
            raise ValueError(f"{path} is no record of gateon, or a damaged one: move it away.") from reason
        return record


class _NewerError(ValueError):
    pass


def _check(record: Record) -> None:
    """Refuse what is not of the annotated kind, and tables that would take more room than the file did."""
    for name, hint in get_type_hints(Record).items():
        if not _fits(getattr(record, name), hint):
            raise TypeError(f"its {name} are of another kind")
    for rows in (record.accuracy, record.macro_f1):
        if any(not k < len(row) <= len(rows) for k, row in enumerate(rows)):
            raise ValueError("its tables have gaps")


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value read from JSON is what an annotation says.

    >>> _fits([{"train": 1}], list[dict[str, float]]), _fits([None], list[float])
    (True, False)
    """
    if kind is Any:
        return True
    if get_origin(kind) is UnionType:
        return any(_fits(value, part) for part in get_args(kind))
    if get_origin(kind) is list:
        return isinstance(value, list) and all(_fits(item, get_args(kind)[0]) for item in value)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(_fits(item, get_args(kind)[1]) for item in value.values())
    if kind in (float, int):
        return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    return value is None if kind is NoneType else isinstance(value, kind)


def _measured(matrix: list[list[float | None]]) -> list[list[bool]]:
    return [[value is not None for value in row] for row in matrix]


def _square(rows: list[list[float | None]]) -> list[list[float]]:
    """Every row as long as there are rows; what was not measured is NaN."""
    return [[math.nan if value is None else value for value in row] + [math.nan] * (len(rows) - len(row)) for row in rows]


def environment() -> dict[str, object]:
    """Where and with what a figure was made: versions, commit, machine, time.

    >>> sorted(environment())
    ['commit', 'cores', 'machine', 'processor', 'python', 'threads', 'time', 'versions']
    """
    return {
        "versions": {name: _version(name) for name in ("gateon", "torch", "numpy", "safetensors")},
        "python": platform.python_version(),
        "commit": _commit(),
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


def _commit() -> str | None:
    """The commit of the source tree gateon runs from, with a + where it has changes; None for an installed package."""
    try:
        _git("ls-files", "--error-unmatch", __file__)  # a package installed below some other repository is not part of it
        return _git("rev-parse", "HEAD") + ("+" if _git("status", "--porcelain", "--untracked-files=no", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    here = Path(__file__).parent
    return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
