"""gateon report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import tyro

from ..pages.page import write_page
from ..pages.watch import Watched, server_of
from ..storage.files import printable

__all__ = ["command"]


def command(
    directories: tyro.conf.Positional[tuple[Path, ...]] = (),
    out: Path | None = None,
    watch: bool = False,
    port: int | None = None,
) -> None:
    """Write one page that shows runs, a comparison, a living model or a reproduced table.

    It opens in any browser, holds everything it shows, and fetches nothing.

    Args:
        directories: directories of runs, of comparisons, of a living model or of reproduced tables.
        out: the file to write; report.html in the first directory by default.
        watch: write nothing; serve the page on this machine, and refresh it while a run goes on.
        port: of the served page; a free one by default.
    """
    if not directories:
        raise ValueError("Which runs? Give the directory of a run or of a comparison.")
    if watch and out is not None:
        raise ValueError("--watch serves the page and writes no file: leave out --out.")
    if port is not None and not watch:
        raise ValueError("--port is that of a served page: add --watch.")
    if port is not None and not 0 < port < 1 << 16:
        raise ValueError(f"--port must be from 1 to 65535, got {port}.")
    if watch:
        _serve(directories, port or 0)
        return
    print(printable(write_page(directories, out or directories[0] / "report.html")))


def _serve(directories: Sequence[Path], port: int) -> None:
    """Serve the page until Ctrl-C."""
    for folder in directories:
        if not folder.is_dir():
            raise ValueError(f"There is no directory {folder}.")
    watched = Watched(directories)
    with server_of(watched, port) as server:
        print(f"http://{server.server_address[0]!s}:{server.server_address[1]}/", flush=True)
        print("Ctrl-C ends it.", file=sys.stderr, flush=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("\nNo longer served.", file=sys.stderr)
