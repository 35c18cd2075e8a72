"""Fashion-MNIST and CIFAR-10: files as their makers publish them, known by the md5 sums given beside them."""

import io
import tarfile
from collections.abc import Mapping
from functools import partial
from hashlib import file_digest, md5
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...storage.fetch import Progress, bring, download, settle, where
from .formats import LARGEST, read_idx
from .store import Dataset, digest, note_origin, origin

__all__ = ["cifar10", "fashion_mnist", "found"]

LICENCES = {"fashion-mnist": "MIT (Zalando SE)", "cifar10": "none stated; cite Krizhevsky 2009"}
ADDRESSES = {
    "fashion-mnist": "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "cifar10": "https://www.cs.toronto.edu/~kriz",
}
MD5 = {
    "fashion-mnist": {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    "cifar10": {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
}


def fashion_mnist(progress: Progress | None = None) -> Dataset:
    """All 60,000 + 10,000 articles of clothing: from `fashion-mnist` in the data directory, or fetched into it."""
    train_x, train_y, test_x, test_y = (
        read_idx(file) for file in _verified("fashion-mnist", progress)
    )
    return _dataset("fashion-mnist", train_x[:, None], train_y, test_x[:, None], test_y)


def cifar10(progress: Progress | None = None) -> Dataset:
    """All 50,000 + 10,000 photographs, read out of the archive of the binary version in `cifar10`, which is fetched if need be."""
    (archive,) = _verified("cifar10", progress)
    batches = [f"data_batch_{n}.bin" for n in range(1, 6)]
    try:
        with tarfile.open(archive) as members:
            train_x, train_y = read_cifar10([_member(members, name) for name in batches])
            test_x, test_y = read_cifar10([_member(members, "test_batch.bin")])
    except (tarfile.TarError, KeyError, EOFError, OSError) as error:
        raise ValueError(f"{archive} is not the archive it should be ({error}).") from error
    return _dataset("cifar10", train_x, train_y, test_x, test_y)


def read_cifar10(batches: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (N, 3, 32, 32) and labels of files of CIFAR-10's binary version: label, pixels.

    >>> images, labels = read_cifar10([bytes([7]) + bytes(3072)])
    >>> images.shape, labels
    ((1, 3, 32, 32), array([7], dtype=uint8))
    """
    content = np.frombuffer(b"".join(batches), np.uint8)
    if not len(content) or len(content) % 3073:
        raise ValueError(
            f"CIFAR-10's binary version is truncated: {len(content)} bytes, no multiple of 3073."
        )
    records = content.reshape(-1, 3073)
    if records[:, 0].max() > 9:
        raise ValueError(
            f"This is not CIFAR-10: a label is {records[:, 0].max()}, not one of 0 to 9."
        )
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].copy()


def found(name: str) -> list[Path]:
    """The files of a data set, if all are there."""
    files = [where() / name / file for file in MD5[name]]
    return files if all(file.is_file() for file in files) else []


def _verified(name: str, progress: Progress | None) -> list[Path]:
    """The files, fetched if they are not there; one that is there and is another is an error, and stays as it is."""
    if not found(name):
        bring(
            name,
            where() / name,
            [partial(_fetch, name)],
            progress,
            "connect to a network, or put its files there",
        )
    files = found(name)
    try:
        for file in files:
            _check(file, MD5[name])
    except ValueError as error:
        raise ValueError(
            f"{error} Delete it, then fetch it anew with `gateon data get {name}`."
        ) from error
    return files


def _fetch(name: str, place: Path, progress: Progress | None) -> None:
    for file in MD5[name]:
        download(f"{ADDRESSES[name]}/{file}", place / file, progress)
        _check(place / file, MD5[name])
    settle(
        [*(place / file for file in MD5[name]), note_origin(place, ADDRESSES[name])], place.parent
    )


def _check(file: Path, sums: Mapping[str, str]) -> None:
    with open(file, "rb") as handle:
        md5_sum = file_digest(handle, lambda: md5(usedforsecurity=False)).hexdigest()
    if md5_sum != sums[file.name]:
        raise ValueError(
            f"{file} is not the file that was published: its md5 is {md5_sum}, not {sums[file.name]}."
        )


def _member(members: tarfile.TarFile, name: str) -> bytes:
    content = members.extractfile(f"cifar-10-batches-bin/{name}")
    return (content or io.BytesIO()).read(LARGEST)


def _dataset(name: str, *arrays: NDArray[np.uint8]) -> Dataset:
    train_x, train_y, test_x, test_y = arrays
    sums = {
        part: digest(array)
        for part, array in zip(("train_x", "train_y", "test_x", "test_y"), arrays, strict=True)
    }
    source = {
        "name": name,
        "from": origin(where() / name),
        "sha256": sums,
        "licence": LICENCES[name],
        "embedded": False,
    }
    return Dataset(name, train_x, train_y, test_x, test_y, 10, source)
