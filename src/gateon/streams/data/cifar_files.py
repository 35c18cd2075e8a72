"""CIFAR-100: its binary version, found, fetched and verified."""

import gzip
import tarfile
import zlib
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...storage.fetch import Progress, bring, download, settle, where
from .formats import LARGEST, read_cifar100_binary
from .store import Dataset, note_origin, origin

__all__ = ["cifar100", "found_cifar100"]

LICENCE = "none stated; cite Krizhevsky 2009"
ADDRESS = "https://www.cs.toronto.edu/~kriz"
VERSION = "cifar-100-binary"
FILES = ("train.bin", "test.bin")
# of the sha256 of all records, sorted: the same in whatever order the records stand
SHA256 = {
    "train": "7077d87fc363f92dbf1245f13ba80561d7b33a96c79ad57168d49dc172aaa92b",
    "test": "96adb3db8da7632dbb350559a17b9f585fab5b17675de5fc8f6761384196b294",
}


def cifar100(progress: Progress | None = None) -> Dataset:
    """All 50,000 + 10,000 images with their fine labels: from the data directory, or fetched into it.

    The images stand in the order of their records' sha256, so that every copy gives equal
    arrays.
    """
    folder = found_cifar100()
    if folder is None:
        advice = "connect to a network, or unpack its binary version there"
        bring("CIFAR-100", where() / "cifar100", [_from_archive], progress, advice)
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
    """The folder of the unpacked files, in `cifar100` or directly in the data directory."""
    folders = (root / VERSION for root in (where() / "cifar100", where()))
    return next(
        (folder for folder in folders if all((folder / file).is_file() for file in FILES)), None
    )


def _verified(folder: Path) -> list[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    parts = []
    for part, file in zip(SHA256, FILES, strict=True):
        images, fine, coarse = read_cifar100_binary(folder / file)
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


def _from_archive(place: Path, progress: Progress | None) -> None:
    archive = place / f"{VERSION}.tar.gz"
    download(f"{ADDRESS}/{archive.name}", archive, progress)
    folder = place / VERSION
    folder.mkdir()
    try:
        with tarfile.open(archive) as members:
            for file in FILES:
                content = members.extractfile(f"{VERSION}/{file}")
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
            *(folder / file for file in FILES),
            note_origin(folder, f"{ADDRESS}/{archive.name}"),
        ],
        place.parent / VERSION,
    )
