"""Layouts of a user's own stream on disk: arrays, images or JSON lines. `own` checks them."""

import math
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import read_array, read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

from ...storage.files import is_regular
from ..draw import permutation
from ..parts import PARTS, Part
from . import formats
from .formats import TooLargeError, json_lines

__all__ = ["PART_NAMES", "Layout", "array_layout", "image_layout", "json_layout", "layout_of"]

Arrays = tuple[NDArray[Any], NDArray[Any]]
PART_NAMES: dict[str, Part] = {part: part for part in PARTS} | {
    "val": "validation",
    "valid": "validation",
    "dev": "validation",
}
# and no others: for some Pillow would start other programs
_FORMATS = (
    "BMP",
    "GIF",
    "JPEG",
    "PNG",
    "PPM",
    "TIFF",
    "WEBP",
)
_IMAGES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


@dataclass(frozen=True, eq=False)
class Layout:
    """The names and parts of the tasks, and a function that reads one part of task k."""

    names: list[str]
    parts: list[set[Part]]
    read: Callable[[int, Part], Arrays]


def layout_of(path: Path, seed: int, largest: int | None = None) -> Layout:
    """Find the layout of a stream; a file or part may take at most `largest` bytes in memory."""
    if not path.exists():
        raise FileNotFoundError(
            f"There is no {path}: "
            "give a directory of npz files or of images, or a file of JSON lines."
        )
    if path.is_file():
        if ".jsonl" in path.suffixes or ".json" in path.suffixes:
            return json_layout(path, largest)
        raise ValueError(
            f"{path} is not a stream: "
            "give a directory of npz files or of images, or a file of JSON lines (.jsonl)."
        )
    if any(path.glob("*.npz")) or any(path.glob("*/*.npz")):
        return array_layout(path, largest)
    if any(file.suffix.lower() in _IMAGES for file in path.glob("*/*/**/*")):
        return image_layout(path, seed, largest)
    raise ValueError(
        f"{path} holds neither TASK.npz or TASK/SPLIT.npz files nor images as TASK/CLASS/FILE."
    )


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort task2 before task10."""
    return [
        (int(piece), "") if piece.isdigit() else (0, piece)
        for piece in re.split(r"([0-9]+)", path.name)
        if piece
    ]


def _visible(directory: Path) -> list[Path]:
    return sorted(
        (entry for entry in directory.iterdir() if not entry.name.startswith(".")), key=_natural
    )


def array_layout(path: Path, largest: int | None = None) -> Layout:
    """TASK.npz with x_train, y_train, x_test, ...; or TASK/SPLIT.npz with x and y."""
    tasks = [
        entry
        for entry in _visible(path)
        if (entry.suffix == ".npz" and not entry.is_dir())
        or (entry.is_dir() and any(entry.glob("*.npz")))
    ]

    parts = [_npz_parts(task) for task in tasks]

    def read(k: int, part: Part) -> Arrays:
        return _read_npz(*parts[k][part], largest)

    return Layout(
        [task.stem if task.is_file() else task.name for task in tasks],
        [set(part) for part in parts],
        read,
    )


def _npz_parts(task: Path) -> dict[Part, tuple[Path, str, str]]:
    """For each part the file it is in, and its arrays' names there."""
    if task.is_dir():
        files = [
            file for file in _visible(task) if file.suffix == ".npz" and file.stem in PART_NAMES
        ]
        return {PART_NAMES[file.stem]: (file, "x", "y") for file in files}
    held = _npz_names(task)
    return {part: (task, f"x_{part}", f"y_{part}") for part in PARTS if f"x_{part}" in held}


def _npz_names(file: Path) -> list[str]:
    with _arrays(file) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


@contextmanager
def _arrays(file: Path) -> Iterator[zipfile.ZipFile]:
    """The archive of an npz file; whatever is wrong with it, in a sentence."""
    try:
        if not is_regular(file):
            raise ValueError("it is no regular file")
        with zipfile.ZipFile(file) as archive:
            yield archive
    except TooLargeError:
        raise
    except Exception as error:  # a hostile file may raise anything at all
        # numpy adds advice for programmers
        why = str(error).strip().partition("\n")[0].rstrip(".:")
        raise ValueError(f"{file} cannot be read as arrays ({why}).") from error


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """An array of plain numbers, after checking that the archive holds all it announces."""
    member = archive.getinfo(f"{name}.npy")
    _announced(archive, name)
    with archive.open(member) as file:
        array: NDArray[Any] = read_array(file, allow_pickle=False)
        return array


def _announced(archive: zipfile.ZipFile, name: str) -> int:
    """Bytes an array takes in memory, as stored and as the 4-byte numbers a network sees."""
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as file:
        header = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}[read_magic(file)]
        shape, _, kind = header(file)
        if kind.hasobject or math.prod(shape) * kind.itemsize > member.file_size:
            raise ValueError(f"{name} is no array of numbers, or announces more than there are")
    return math.prod(shape) * max(kind.itemsize, 4)


def _read_npz(file: Path, x: str, y: str, largest: int | None) -> Arrays:
    if missing := {x, y} - set(_npz_names(file)):
        raise ValueError(f"{file} holds no array {' and no array '.join(sorted(missing))}.")
    with _arrays(file) as archive:
        if _announced(archive, x) + _announced(archive, y) > (
            formats.LARGEST if largest is None else largest
        ):
            raise TooLargeError(file, largest)
        return _array(archive, x), _array(archive, y)


def image_layout(path: Path, seed: int, largest: int | None = None) -> Layout:
    """TASK/SPLIT/CLASS/FILE; or TASK/CLASS/FILE: a fifth of a class tests, a tenth validates.

    Labels number the class names of all tasks together in their sorted order.
    """
    tasks = [entry for entry in _visible(path) if entry.is_dir()]
    listed = [_listed(task, k, seed) for k, task in enumerate(tasks)]
    files = [(file, name) for task in listed for part in task.values() for file, name in part]
    labels = {name: label for label, name in enumerate(sorted({name for _, name in files}))}
    modes = {_image_mode(file) for file, _ in files}
    mode = "L" if modes <= {"1", "L"} else "RGB"

    def read(k: int, part: Part) -> Arrays:
        chosen = listed[k][part]
        images = np.empty((0, 1, 1, 1), np.uint8)
        for n, (file, _) in enumerate(chosen):
            if n == 0 and 4 * len(chosen) * _pixels(file, mode) > (
                formats.LARGEST if largest is None else largest
            ):
                raise TooLargeError(path / tasks[k].name, largest)
            if n and _size(file) != (images.shape[3], images.shape[2]):
                sizes = " and ".join(
                    f"{width} x {height}"
                    for width, height in (_size(file), (images.shape[3], images.shape[2]))
                )
                raise ValueError(
                    f"{file} and the images before it differ in size, {sizes}: "
                    "resize them to one size."
                )
            image = _image(file, mode)
            if n == 0:
                images = np.empty((len(chosen), *image.shape), np.uint8)
            images[n] = image
        return images, np.array([labels[name] for _, name in chosen], np.int64)

    return Layout([task.name for task in tasks], [set(parts) for parts in listed], read)


def _listed(task: Path, k: int, seed: int) -> dict[Part, list[tuple[Path, str]]]:
    """The image files of a task with their class names, part by part."""
    folders = [entry for entry in _visible(task) if entry.is_dir()]
    if folders and all(folder.name in PART_NAMES for folder in folders):
        return {
            PART_NAMES[folder.name]: [pair for kind in _visible(folder) for pair in _files(kind)]
            for folder in folders
        }
    parts: dict[Part, list[tuple[Path, str]]] = {part: [] for part in PARTS}
    for folder in folders:
        files = _files(folder)
        if len(files) < 3:
            raise ValueError(
                f"{folder} holds {len(files)} images: "
                "a class needs three, one each to train, validate and test."
            )
        order = permutation(len(files), seed, "own images", k, folder.name)
        test, validation = max(len(files) // 5, 1), max(len(files) // 10, 1)
        for part, chosen in zip(
            PARTS,
            np.split(order[::-1], [len(files) - test - validation, len(files) - test]),
            strict=True,
        ):
            parts[part] += [files[row] for row in np.sort(chosen)]
    return parts


def _files(folder: Path) -> list[tuple[Path, str]]:
    files = _visible(folder) if folder.is_dir() else []
    return [(file, folder.name) for file in files if file.suffix.lower() in _IMAGES]


def _image_mode(file: Path) -> str:
    with _opened(file) as image:
        if image.mode not in {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"}:
            raise ValueError(
                f"{file} has pixels of kind {image.mode}: convert it to 8 bits a channel."
            )
        return str(image.mode)


def _size(file: Path) -> tuple[int, int]:
    with _opened(file) as image:
        width, height = image.size
        return width, height


def _pixels(file: Path, mode: str) -> int:
    return math.prod(_size(file)) * len(mode)


def _image(file: Path, mode: str) -> NDArray[np.uint8]:
    try:
        with _opened(file) as image:
            pixels = np.asarray(image.convert(mode))
    except Exception as error:  # a broken image may raise anything at all
        raise ValueError(f"{file} is a broken image ({error}).") from error
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _opened(file: Path) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("Reading a stream of images needs Pillow: pip install pillow.") from error
    try:
        if not is_regular(file):
            raise ValueError("it is no regular file")
        return Image.open(file, formats=_FORMATS)
    except Exception as error:  # as above, and where the picture would be larger than any camera's
        raise ValueError(f"{file} cannot be read as an image ({error}).") from error


def json_layout(path: Path, largest: int | None = None) -> Layout:
    """One object per line: task, split, features (numbers, nested for images) and label."""
    rows: dict[str, dict[Part, tuple[list[NDArray[np.float32]], list[int]]]] = {}
    shape: tuple[int, ...] | None = None
    for number, row in enumerate(json_lines(path, largest), 1):
        at = f"Row {number} of {path}"
        if "features" not in row and "text" in row:
            raise ValueError(f"{path} holds text, which needs a tokenizer: open it as text:{path}.")
        if missing := {"task", "split", "features", "label"} - row.keys():
            raise ValueError(f"{at} has no {' and no '.join(sorted(missing))}.")
        part = PART_NAMES.get(str(row["split"]))
        if part is None:
            raise ValueError(f"{at} has the split {row['split']!r}: use train, validation or test.")
        if type(row["label"]) is not int or row["label"] >= 1 << 31:
            raise ValueError(
                f"{at} has the label {row['label']!r}: labels must be whole numbers from 0 up."
            )
        try:
            with np.errstate(over="ignore"):  # an infinity is found when all is checked
                features = np.array(row["features"], np.float32)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(
                f"{at} has features that are no array of numbers ({error})."
            ) from error
        shape = shape or features.shape
        if features.shape != shape or not shape:
            raise ValueError(
                f"{at} has features of shape {features.shape}, the rows before it {shape}: "
                "make them alike."
            )
        inputs, labels = rows.setdefault(str(row["task"]), {}).setdefault(part, ([], []))
        inputs.append(features)
        labels.append(row["label"])
    stacked: dict[str, dict[Part, Arrays]] = {}
    for task in list(rows):  # one at a time, each let go as its array is there
        parts = rows.pop(task)
        stacked[task] = {
            part: (np.stack(inputs), np.array(labels)) for part, (inputs, labels) in parts.items()
        }
    names = list(stacked)
    return Layout(
        names, [set(stacked[name]) for name in names], lambda k, part: stacked[names[k]][part]
    )
