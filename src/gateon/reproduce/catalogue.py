"""Which tables and figures there are. Reading this imports no torch."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

__all__ = ["names", "titles"]

FOLDER = Path(__file__).parent / "tables"


@cache
def names() -> dict[str, Path]:
    """The file of every table by name: those of the paper first, tables before figures.

    >>> list(names())[0]
    'table-1'
    """
    files = sorted(FOLDER.glob("*/*.toml"), key=_order)
    return {file.stem: file for file in files}


def titles() -> dict[str, str]:
    """What every table is.

    >>> titles()["figure-epsilon"]
    'Immediate accuracy over 100 permuted tasks for epsilon 0, 0.5 and 1'
    """
    return {
        name: str(tomllib.loads(file.read_text(encoding="utf-8"))["title"])
        for name, file in names().items()
    }


def _order(file: Path) -> tuple[bool, bool, str]:
    return file.parent.name != "paper", file.stem.startswith("figure"), file.stem
