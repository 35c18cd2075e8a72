"""gateon list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rich.console import Console
from rich.table import Table

from ..methods import names as methods
from ..streams import names as streams

__all__ = ["command"]

TABLES: dict[str, Mapping[str, str]] = {
    "streams": streams.ABOUT,
    "methods": {str(name): about for name, about in methods.ABOUT.items()},
    "presets": methods.PRESETS,
}


def command(what: Literal["streams", "methods", "presets"]) -> None:
    """List the streams, methods or presets.

    Args:
        what: streams, methods or presets.
    """
    shown = Table.grid(padding=(0, 2))
    for name, about in TABLES[what].items():
        shown.add_row(name, about)
    Console().print(shown)
