"""CIFAR-100: found, fetched, verified, whether in its binary or in its python version."""

import gzip
import tarfile
import zlib
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .fetch import Progress, download, settle
from .formats import LARGEST, read_cifar100_binary, read_cifar100_python
from .store import Dataset, bring, note_origin, origin, where

__all__ = ["cifar100", "found_cifar100"]

LICENCE = "none stated; cite Krizhevsky 2009"
ADDRESS = "https://www.cs.toronto.edu/~kriz"
FILES = {"cifar-100-binary": ("train.bin", "test.bin"), "cifar-100-python": ("train", "test")}
READERS = {"cifar-100-binary": read_cifar100_binary, "cifar-100-python": read_cifar100_python}
# of the sha256 of all records, sorted: the same for both versions, and in whatever order the
# records stand
SHA256 = {
    "train": "7077d87fc363f92dbf1245f13ba80561d7b33a96c79ad57168d49dc172aaa92b",
    "test": "96adb3db8da7632dbb350559a17b9f585fab5b17675de5fc8f6761384196b294",
}


def cifar100(progress: Progress | None = None) -> Dataset:
    """All 50,000 + 10,000 images with their fine labels: from the data directory, or fetched into it.

    The images stand in the order of their records' sha256, so that every version and every copy
    gives equal arrays.
    """
    folder = found_cifar100()
    if folder is None:
        attempts = [partial(_from_archive, version) for version in FILES]
        advice = "connect to a network, or unpack its binary or python version there"
        bring("CIFAR-100", where() / "cifar100", attempts, progress, advice)
        folder = found_cifar100()
        assert folder, "settled files are found"
    try:
        (train_x, train_y), (test_x, test_y) = _verified(folder)
    except ValueError as error:
        advice = f"Delete {folder}, then fetch it anew with `gateon data get cifar100`."
        raise ValueError(f"{error} {advice}") from error
    source = {"name": "cifar100", "from": origin(folder), "sha256": SHA256, "licence": LICENCE}
    return Dataset("cifar100", train_x, train_y, test_x, test_y, 100, source | {"embedded": False})


def found_cifar100() -> Path | None:
    """The folder of an unpacked version, in `cifar100` or directly in the data directory."""
    folders = [root / version for root in (where() / "cifar100", where()) for version in FILES]
    return next(
        (
            folder
            for folder in folders
            if all((folder / file).is_file() for file in FILES[folder.name])
        ),
        None,
    )


def _verified(folder: Path) -> list[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    parts = []
    for part, file in zip(SHA256, FILES[folder.name], strict=True):
        images, fine, coarse = READERS[folder.name](folder / file)
        records = np.concatenate(
            [coarse[:, None], fine[:, None], images.reshape(len(images), -1)], axis=1
        )
        digests = [sha256(record.data).digest() for record in records]
        order = sorted(range(len(digests)), key=digests.__getitem__)
        if sha256(b"".join(digests[place] for place in order)).hexdigest() != SHA256[part]:
            raise ValueError(
                f"{folder / file} does not hold CIFAR-100's {part} images: their sha256 differs."
            )
        parts.append((images[order], fine[order]))
    return parts


def _from_archive(version: str, place: Path, progress: Progress | None) -> None:
    archive = place / f"{version}.tar.gz"
    download(f"{ADDRESS}/{archive.name}", archive, progress)
    folder = place / version
    folder.mkdir()
    try:
        with tarfile.open(archive) as members:
            for file in FILES[version]:
                content = members.extractfile(f"{version}/{file}")
                (folder / file).write_bytes(content.read(LARGEST) if content else b"")
    except (
        tarfile.TarError,
        KeyError,
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
        RecursionError,
    ) as error:
        raise ValueError(f"{archive.name} is not the archive it should be ({error})") from error
    _verified(folder)
    settle(
        [
            *(folder / file for file in FILES[version]),
            note_origin(folder, f"{ADDRESS}/{archive.name}"),
        ],
        place.parent / version,
    )
