"""Files from elsewhere, read within bounds: packed files, JSON lines, npz arrays and images.

Nothing in a file is ever run. What is wrong with a file is one sentence that names it. Sizes are
checked before anything is unpacked, since a small file may stand for any amount of zeros.
"""

import bz2
import gzip
import json
import lzma
import math
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from numpy.lib.format import read_array, read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

from .files import is_regular

__all__ = [
    "IMAGE_SUFFIXES",
    "LARGEST",
    "ROW",
    "TooLargeError",
    "array_bytes",
    "array_names",
    "json_lines",
    "largest_of",
    "open_arrays",
    "open_image",
    "open_unpacked",
    "read_named_array",
    "visible",
]

LARGEST = 1 << 30  # bytes of a file once unpacked
LONGEST = 1 << 24  # bytes of a JSON line
ROW = 128  # bytes that a row takes in memory besides its content
IMAGE_SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
# No others: Pillow starts other programs to read some formats.
IMAGE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")

_OPENERS: dict[str, Callable[[Path, str], Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError, MemoryError)


def largest_of(data_limit: float | None) -> int | None:
    """Gigabytes as bytes.

    >>> largest_of(0.5)
    536870912
    """
    if data_limit is not None and not 0 < data_limit <= 1 << 20:
        raise ValueError(f"data_limit must be above 0 and at most {1 << 20} GB, got {data_limit}.")
    return None if data_limit is None else int(data_limit * LARGEST)


class TooLargeError(ValueError):
    """A file would take more memory than it may."""

    def __init__(self, path: Path, largest: int | None = None) -> None:
        most = (LARGEST if largest is None else largest) / (1 << 30)
        super().__init__(
            f"{path} holds more than {most:g} GB once it is unpacked: "
            "raise --data-limit (data_limit= in Python) to read it."
        )


@contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, unpacked if it ends in .gz, .xz or .bz2."""
    try:
        with cast(BinaryIO, _OPENERS.get(path.suffix, open)(path, "rb")) as file:
            yield file
    except _BROKEN as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's error, not the file's
        raise ValueError(f"{path} is truncated or not a {path.suffix} file ({error}).") from error


def json_lines(path: Path | str, largest: int | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a JSON lines file (also .gz, .xz, .bz2), one object per line.

    Args:
        path: the file.
        largest: bytes it may have once unpacked, counting what each row takes in memory besides;
            None for a gigabyte.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "reviews.jsonl"
    >>> _ = file.write_text('{"task": "books", "split": "train", "text": "A joy.", "label": 1}')
    >>> [row["text"] for row in json_lines(file)]
    ['A joy.']
    """
    path, left = Path(path), LARGEST if largest is None else largest
    with open_unpacked(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST + 1), b""), 1):
            left -= len(line) + ROW
            if left < 0:
                raise TooLargeError(path, largest)
            if len(line) > LONGEST:
                raise ValueError(
                    f"Line {number} of {path} is longer than {LONGEST} bytes: break it up."
                )
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"Line {number} of {path} is not JSON: {error}.") from error
            if not isinstance(row, dict):
                raise ValueError(f"Line {number} of {path} is not a JSON object.")
            yield row


@contextmanager
def open_arrays(file: Path) -> Iterator[zipfile.ZipFile]:
    """Open the archive of an npz file."""
    try:
        if not is_regular(file):
            raise ValueError("it is not a regular file")
        with zipfile.ZipFile(file) as archive:
            yield archive
    except TooLargeError:
        raise
    except Exception as error:  # a hostile file may raise anything at all
        why = str(error).strip().partition("\n")[0].rstrip(".:")  # numpy adds advice to programmers
        raise ValueError(f"{file} cannot be read as arrays ({why}).") from error


def array_names(file: Path) -> list[str]:
    """The names of the arrays in an npz file."""
    with open_arrays(file) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def array_bytes(archive: zipfile.ZipFile, name: str) -> int:
    """Bytes an array takes in memory, each number counting at least the 4 a network sees."""
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as file:
        header = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}[read_magic(file)]
        shape, _, kind = header(file)
        if kind.hasobject or math.prod(shape) * kind.itemsize > member.file_size:
            raise ValueError(f"{name} is no array of numbers, or announces more than there are")
    return math.prod(shape) * max(kind.itemsize, 4)


def read_named_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Read one array, once it is known that the archive holds as much as the array announces."""
    array_bytes(archive, name)
    with archive.open(archive.getinfo(f"{name}.npy")) as file:
        array: NDArray[Any] = read_array(file, allow_pickle=False)
        return array


def open_image(file: Path) -> Any:
    """Open an image with Pillow. Its pixels are not decoded yet."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("Reading images needs Pillow: pip install pillow.") from error
    try:
        if not is_regular(file):
            raise ValueError("it is not a regular file")
        with warnings.catch_warnings():  # whoever reads the pixels has a bound, and says so
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(file, formats=IMAGE_FORMATS)
    except Exception as error:  # a broken or enormous image may raise anything at all
        raise ValueError(f"{file} cannot be read as an image ({error}).") from error


def visible(directory: Path) -> list[Path]:
    """The entries of a directory that are not hidden, task2 before task10."""
    return sorted(
        (entry for entry in directory.iterdir() if not entry.name.startswith(".")), key=_natural
    )


def _natural(path: Path) -> list[tuple[int, str]]:
    return [
        (int(piece), "") if piece.isdigit() else (0, piece)
        for piece in re.split(r"([0-9]+)", path.name)
        if piece
    ]
