"""gateon report."""

from __future__ import annotations

from pathlib import Path

import tyro

from ..report.page import write_page
from ..storage.files import printable

__all__ = ["command"]


def command(
    directories: tyro.conf.Positional[tuple[Path, ...]] = (),
    out: Path | None = None,
) -> None:
    """Write one page that shows runs, a comparison or a reproduced table, to open in a browser.

    The page holds everything it shows and fetches nothing.

    Args:
        directories: directories of runs, of comparisons or of reproduced tables.
        out: the file to write; report.html in the first directory by default.
    """
    if not directories:
        raise ValueError("Which runs? Give the directory of a run or of a comparison.")
    print(printable(write_page(directories, out or directories[0] / "report.html")))
