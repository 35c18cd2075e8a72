"""Files at a URL, through fsspec: in object stores and wherever else it reaches, each of them whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

__all__ = ["Remote", "StorageError", "is_url"]

URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
# What is put there appears at once and whole, and there are no directories to make.
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "r2"}
PART = ".part"  # ends the name of what is not whole yet


def is_url(text: str) -> bool:
    """Whether it is a URL and not a path.

    >>> is_url("s3://bucket/runs"), is_url("/mnt/runs"), is_url("C:/runs")
    (True, False, False)
    """
    return re.match(r"[^/\\]+://", text) is not None


class StorageError(ValueError):
    """Storage at a URL cannot be used, in one sentence."""


class Remote:
    """A directory at a URL. It is pickled as that, and opened again where it is needed.

    Args:
        url: what fsspec reads, as in s3://bucket/runs.

    >>> import tempfile
    >>> there, here = Remote("memory://demo"), Path(tempfile.mkdtemp()) / "note"
    >>> there.write("note", b"hello")
    >>> there.fetch("note", here)
    >>> here.read_bytes(), there.read("nothing"), there.files()
    (b'hello', None, ['note'])
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        found = URL.fullmatch(self.url)
        if found is None:
            raise ValueError(f"{url} is no URL of a directory: expected one like s3://bucket/runs.")
        self.protocol = found[1].lower()
        self._system: tuple[Any, str] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Only the URL goes to another machine: connections and credentials stay here."""
        return Remote, (self.url,)

    def __str__(self) -> str:
        """The URL."""
        return self.url

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    def below(self, name: str) -> Remote:
        """A directory in this one; they share a connection."""
        found = Remote(f"{self.url}/{name}")
        if self._system is not None:
            system, path = self._system
            found._system = system, f"{path}/{name}"
        return found

    def files(self) -> list[str]:
        """The names of the files in it; none if it is not there."""
        return self._names("file")

    def folders(self) -> list[str]:
        """The names of the directories in it."""
        return self._names("directory")

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None if there is none."""
        with self._explaining("read"):
            system, path = self._opened()
            try:
                content: bytes = system.cat_file(f"{path}/{name}")
            except FileNotFoundError:
                return None
            return content

    def write(self, name: str, content: bytes) -> None:
        """Write a small file."""
        with self._placing(name) as (system, place):
            system.pipe_file(place, content)

    def fetch(self, name: str, path: Path) -> None:
        """Copy a file to this machine."""
        with self._explaining("read"):
            system, folder = self._opened()
            system.get_file(f"{folder}/{name}", str(path))

    def send(self, path: Path, name: str) -> None:
        """Copy a file of this machine there; until it is whole, readers see what was there."""
        with self._placing(name) as (system, place):
            system.put_file(str(path), place)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._explaining("written"):
            system, folder = self._opened()
            with suppress(FileNotFoundError):
                system.rm_file(f"{folder}/{name}")

    @contextmanager
    def _placing(self, name: str) -> Iterator[tuple[Any, str]]:
        """Where to write a file."""
        with self._explaining("written"):
            system, folder = self._opened()
            place = f"{folder}/{name}"
            if self.protocol in OBJECT_STORES:
                yield system, place
                return
            # each writer has a name of its own: two of them must not write into one file
            aside = f"{place}.{uuid4().hex[:8]}{PART}"
            system.makedirs(place.rpartition("/")[0], exist_ok=True)
            try:
                yield system, aside
                system.mv(aside, place)
            except BaseException:
                with suppress(Exception):
                    system.rm_file(aside)
                raise

    def _names(self, kind: str) -> list[str]:
        with self._explaining("read"):
            system, folder = self._opened()
            system.invalidate_cache()
            try:
                found = system.ls(folder, detail=True)
            except FileNotFoundError:
                return []
        places = [one["name"].strip("/") for one in found if one["type"] == kind]
        return sorted(place.rpartition("/")[2] for place in places if place != folder.strip("/"))

    def _opened(self) -> tuple[Any, str]:
        if self._system is None:
            self._system = _connected(self.url, self.protocol)
        return self._system

    @contextmanager
    def _explaining(self, done: str) -> Iterator[None]:
        """Whatever goes wrong, which is as varied as storage is, in one sentence."""
        try:
            yield
        except (StorageError, ImportError):
            raise
        except Exception as reason:
            why = (str(reason).strip().splitlines() or [""])[0].rstrip(".") or type(reason).__name__
            raise StorageError(
                f"{self.url} cannot be {done} ({why}): check the address, your permission there "
                "and the network."
            ) from reason


def _connected(url: str, protocol: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        import fsspec
        from fsspec.core import url_to_fs
        from fsspec.registry import known_implementations
    except ImportError as missing:
        raise ImportError(f"--out {url} needs fsspec: pip install 'gateon[storage]'.") from missing
    if protocol not in known_implementations and protocol not in fsspec.available_protocols():
        raise StorageError(
            f"{url} has the protocol {protocol}, which fsspec does not know: "
            "give one like s3://, gs:// or file://, or a path."
        )
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError as missing:
        needed = known_implementations[protocol]["class"].partition(".")[0]
        if needed == "fsspec":  # it has the class, but not what that stands on
            needed = missing.__cause__.name if isinstance(missing.__cause__, ImportError) else None
        advice = f"pip install {needed}" if needed else str(missing)
        raise ImportError(f"Storage at {protocol}:// is not installed here: {advice}.") from missing
    # What other machines write must be seen, so nothing about directories is remembered.
    system, path = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    return system, str(path).rstrip("/")
