"""Layouts of a user's own stream on disk: arrays, images or JSON lines. `own` checks them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...storage import bounded
from ...storage.bounded import (
    IMAGE_SUFFIXES,
    TooLargeError,
    array_bytes,
    array_names,
    json_lines,
    open_arrays,
    open_image,
    read_named_array,
    visible,
)
from ..draw import permutation
from ..parts import PARTS, Part

__all__ = ["PART_NAMES", "Layout", "array_layout", "image_layout", "json_layout", "layout_of"]

Arrays = tuple[NDArray[Any], NDArray[Any]]
PART_NAMES: dict[str, Part] = {part: part for part in PARTS} | {
    "val": "validation",
    "valid": "validation",
    "dev": "validation",
}


@dataclass(frozen=True, eq=False)
class Layout:
    """The names and parts of the tasks, and a function that reads one part of task k.

    Where labels 0, 1, ... have names, the same in all tasks, they are `labels`.
    """

    names: list[str]
    parts: list[set[Part]]
    read: Callable[[int, Part], Arrays]
    labels: list[str] | None = None


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
    if any(file.suffix.lower() in IMAGE_SUFFIXES for file in path.glob("*/*/**/*")):
        return image_layout(path, seed, largest)
    raise ValueError(
        f"{path} holds neither TASK.npz or TASK/SPLIT.npz files nor images as TASK/CLASS/FILE."
    )


def array_layout(path: Path, largest: int | None = None) -> Layout:
    """TASK.npz with x_train, y_train, x_test, ...; or TASK/SPLIT.npz with x and y."""
    tasks = [
        entry
        for entry in visible(path)
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
            file for file in visible(task) if file.suffix == ".npz" and file.stem in PART_NAMES
        ]
        return {PART_NAMES[file.stem]: (file, "x", "y") for file in files}
    held = array_names(task)
    return {part: (task, f"x_{part}", f"y_{part}") for part in PARTS if f"x_{part}" in held}


def _read_npz(file: Path, x: str, y: str, largest: int | None) -> Arrays:
    if missing := {x, y} - set(array_names(file)):
        raise ValueError(f"{file} holds no array {' and no array '.join(sorted(missing))}.")
    with open_arrays(file) as archive:
        if array_bytes(archive, x) + array_bytes(archive, y) > (
            bounded.LARGEST if largest is None else largest
        ):
            raise TooLargeError(file, largest)
        return read_named_array(archive, x), read_named_array(archive, y)


def image_layout(path: Path, seed: int, largest: int | None = None) -> Layout:
    """TASK/SPLIT/CLASS/FILE; or TASK/CLASS/FILE: a fifth of a class tests, a tenth validates.

    Labels number the class names of all tasks together in their sorted order.
    """
    tasks = [entry for entry in visible(path) if entry.is_dir()]
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
                bounded.LARGEST if largest is None else largest
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

    return Layout(
        [task.name for task in tasks], [set(parts) for parts in listed], read, list(labels)
    )


def _listed(task: Path, k: int, seed: int) -> dict[Part, list[tuple[Path, str]]]:
    """The image files of a task with their class names, part by part."""
    folders = [entry for entry in visible(task) if entry.is_dir()]
    if folders and all(folder.name in PART_NAMES for folder in folders):
        return {
            PART_NAMES[folder.name]: [pair for kind in visible(folder) for pair in _files(kind)]
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
    files = visible(folder) if folder.is_dir() else []
    return [(file, folder.name) for file in files if file.suffix.lower() in IMAGE_SUFFIXES]


def _image_mode(file: Path) -> str:
    with open_image(file) as image:
        if image.mode not in {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"}:
            raise ValueError(
                f"{file} has pixels of kind {image.mode}: convert it to 8 bits a channel."
            )
        return str(image.mode)


def _size(file: Path) -> tuple[int, int]:
    with open_image(file) as image:
        width, height = image.size
        return width, height


def _pixels(file: Path, mode: str) -> int:
    return math.prod(_size(file)) * len(mode)


def _image(file: Path, mode: str) -> NDArray[np.uint8]:
    try:
        with open_image(file) as image:
            pixels = np.asarray(image.convert(mode))
    except Exception as error:  # a broken image may raise anything at all
        raise ValueError(f"{file} is a broken image ({error}).") from error
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


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
