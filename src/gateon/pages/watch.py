"""A page served on this machine alone, which follows what happens in its directories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from ..storage.files import printable
from .kinds import Facts, NothingError, facts
from .page import as_json, page

__all__ = ["Watched", "server_of"]

HOST = "127.0.0.1"
FILES = ("record.json", "trace.npz", "current", "history.jsonl", "checkpoint*.safetensors")


class Watched:
    """The facts of some directories, read again when their files have changed.

    Args:
        folders: See `facts`.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = list(folders)
        self._lock = Lock()
        self._seen: object = None
        self._facts = self._read()

    def now(self) -> Facts:
        """The facts as they are now; the last ones, with a problem, where they cannot be read."""
        with self._lock:
            seen = self._files()
            if seen != self._seen:
                self._seen, self._facts = seen, self._read()
            return self._facts

    def version(self) -> str:
        """A text that changes whenever the files do."""
        return str(hash(tuple(self._files())))

    def _files(self) -> list[tuple[str, int, int]]:
        found = []
        for folder in self.folders:
            for pattern in FILES:
                for path in [*folder.glob(pattern), *folder.glob(f"*/{pattern}")]:
                    try:
                        held = path.stat()
                    except OSError:  # a checkpoint that was just replaced
                        continue
                    found.append((str(path), held.st_mtime_ns, held.st_size))
        return sorted(found)

    def _read(self) -> Facts:
        try:
            return facts(self.folders) | {"problem": None}
        except NothingError:
            return _waiting(self.folders)
        except (ValueError, OSError) as problem:
            last: Facts = getattr(self, "_facts", None) or _waiting(self.folders)
            return last | {"problem": printable(problem)}


def server_of(watched: Watched, port: int = 0) -> ThreadingHTTPServer:
    """A server of the page on a free port, or the one given; it answers this machine alone.

    Args:
        watched: what it shows.
        port: 0 for any that is free.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self._is_ours():
                self._send(403, "text/plain", "This page answers the machine it runs on alone.")
            elif self.path == "/":
                shown = watched.now() | {"version": watched.version()}
                self._send(200, "text/html", page(shown, served=True))
            elif self.path == "/version":
                self._send(200, "application/json", json.dumps(watched.version()))
            elif self.path == "/facts":
                version = watched.version()
                self._send(200, "application/json", as_json(watched.now() | {"version": version}))
            else:
                self._send(404, "text/plain", "There is nothing here.")

        def _is_ours(self) -> bool:
            """Whether the address asked for is this machine's, which a foreign page's is not."""
            host = self.headers.get("Host", "").rpartition(":")[0]
            return host in (HOST, "localhost")

        def _send(self, status: int, kind: str, text: str) -> None:
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the terminal is the user's."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except (OSError, OverflowError) as reason:
        raise ValueError(
            f"Port {port} cannot be used ({getattr(reason, 'strerror', None) or reason}): "
            "leave --port out for a free one."
        ) from reason


def _waiting(folders: Sequence[Path]) -> Facts:
    """What is shown while there is nothing yet."""
    return {
        "kind": "nothing",
        "title": ", ".join(folder.name or str(folder) for folder in folders),
        "about": "Nothing is here yet. The page fills as soon as something is.",
        "findings": [],
        "problem": None,
    }
