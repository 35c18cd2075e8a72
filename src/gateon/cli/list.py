"""gateon list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rich.console import Console
from rich.table import Table

from .. import reproduce
from ..methods.registry import METHODS, PRESETS
from ..streams.registry import FROM_FILES, STREAMS

__all__ = ["command"]

TABLES: dict[str, Mapping[str, str]] = {
    "streams": {
        **{name: entry.about for name, entry in STREAMS.items()},
        **{f"{kind}:PATH": entry.about for kind, entry in FROM_FILES.items()},
    },
    "methods": {name: entry.about for name, entry in METHODS.items()},
    "presets": PRESETS,
    "tables": reproduce.titles(),
}


def command(what: Literal["streams", "methods", "presets", "tables"]) -> None:
    """List the streams, methods or presets, or the tables and figures of the paper.

    Args:
        what: streams, methods, presets or tables.
    """
    shown = Table.grid(padding=(0, 2))
    for name, about in TABLES[what].items():
        shown.add_row(name, about)
    Console().print(shown)
