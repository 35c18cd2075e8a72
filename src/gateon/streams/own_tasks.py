"""The user's own stream: read on demand, and checked as a whole before training."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..storage.bounded import largest_of
from .base import PARTS, Part, Split, Stream, assemble, whole
from .data.own_files import Layout, layout_of
from .draw import permutation

__all__ = ["own"]

BLOCK = 4096  # rows looked at at once


def own(path: Path | str, seed: int = 0, data_limit: float | None = None) -> Stream:
    """A stream from the user's own files.

    - a directory of arrays: `TASK.npz` with x_train, y_train, x_test, y_test (and x_validation,
      y_validation), or `TASK/SPLIT.npz` with x and y; x is (N, F), (N, H, W) or (N, C, H, W), and
      8-bit numbers are divided by 255;
    - a directory of images: `TASK/CLASS/FILE` or `TASK/SPLIT/CLASS/FILE`;
    - JSON lines: task, split, features, label.

    Tasks come in the order of their names (task2 before task10), in JSON lines in the order of
    their appearance. Labels are whole numbers from 0 up without a gap over the whole stream. Where
    there is no validation part, a tenth of the training data is held out. Every file is read once
    at the start, one task at a time, so that a bad one is found before training.

    Args:
        path: the directory or file.
        seed: draws what is held out.
        data_limit: gigabytes that one part of a task, or a file of JSON lines, may take once
            unpacked; 1 by default.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> x, y = np.linspace(0, 1, 40, dtype=np.float32).reshape(20, 2), np.arange(20) % 2
    >>> for task in ("first", "second"):
    ...     np.savez(folder / f"{task}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    >>> stream = own(folder)
    >>> stream.tasks, stream.classes, stream.shape, len(stream[1].train), len(stream[1].validation)
    (2, 2, (2,), 18, 2)
    """
    path, seed = Path(path).expanduser(), whole("seed", seed, least=0)
    layout = layout_of(path, seed, largest_of(data_limit))

    for name, parts in zip(layout.names, layout.parts, strict=True):
        if missing := {"train", "test"} - parts:
            raise ValueError(
                f"Task {name!r} in {path} has no {' and no '.join(sorted(missing))} part: "
                "every task needs both."
            )

    def make_split(k: int, part: Part) -> Split:
        held_out = part != "test" and "validation" not in layout.parts[k]
        source: Part = "train" if held_out else part
        at = f"the {source} part of task {layout.names[k]!r} in {path}"
        x, y = layout.read(k, source)
        _check(x, y, at)
        if held_out:
            rows = _held_out(len(y), part, k, seed)
            # what was read is let go here: there are never more than two copies
            x, y = (
                x[rows],
                y[rows],
            )
        return _split(x, y)

    classes, shape, digest = _survey(layout, make_split, path)
    source = {
        "name": "own",
        "from": str(path),
        "sha256": digest,
        "licence": "the user's own",
        "embedded": False,
    }
    return Stream(
        name=f"own:{path}",
        tasks=len(layout.names),
        classes=classes,
        shape=shape,
        settings={"stream": f"own:{path}", "seed": seed}
        | ({} if data_limit is None else {"data_limit": data_limit}),
        source=source,
        make=lambda k: assemble(layout.names[k], k, lambda part: make_split(k, part)),
        make_split=make_split,
        labels=None if layout.labels is None else lambda k: layout.labels or (),
    )


def _held_out(count: int, part: Part, k: int, seed: int) -> NDArray[np.int64]:
    """Rows of the training data without a tenth, or of that tenth."""
    held = max(count // 10, 1)
    order = permutation(count, seed, "own validation", k)
    return np.sort(order[:held] if part == "validation" else order[held:])


def _check(x: NDArray[Any], y: NDArray[Any], at: str) -> None:
    """Raise an error that says what is wrong with inputs and labels, and where."""
    if (
        y.ndim != 1
        or y.dtype.kind not in "biu"
        or (len(y) and not 0 <= y.min() <= y.max() < 1 << 31)
    ):
        raise ValueError(f"The labels in {at} must be one whole number from 0 up for each row.")
    if x.ndim == 0 or len(x) != len(y) or not len(y):
        count = 0 if x.ndim == 0 else len(x)
        raise ValueError(
            f"There must be as many inputs as labels, and some, in {at}: "
            f"there are {count} and {len(y)}."
        )
    if x.ndim not in (2, 3, 4) or x.dtype.kind not in "biuf":
        kinds = "numbers of shape (N, F), (N, H, W) or (N, C, H, W)"
        raise ValueError(f"The inputs in {at} must be {kinds}, got {x.dtype} of shape {x.shape}.")
    if not x.size:
        raise ValueError(
            f"The inputs in {at} have no numbers, their shape is {x.shape}: "
            "leave out what is empty."
        )
    if x.ndim == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        raise ValueError(
            f"The images in {at} have their channels last, {x.shape}: "
            "transpose them to (N, C, H, W)."
        )
    for start in range(0, len(x), BLOCK):
        with np.errstate(over="ignore"):
            finite = np.isfinite(x[start : start + BLOCK].astype(np.float32, copy=False)).reshape(
                len(x[start : start + BLOCK]), -1
            )
        if not finite.all():
            row = start + int(np.flatnonzero(~finite.all(axis=1))[0])
            raise ValueError(
                f"There is a NaN or an infinity in {at}, row {row}: remove or replace it."
            )


def _split(x: NDArray[Any], y: NDArray[Any]) -> Split:
    """Inputs and labels as tensors."""
    if x.ndim == 3:
        x = x[:, None]
    values = (
        np.divide(x, 255, dtype=np.float32)
        if x.dtype == np.uint8
        else np.ascontiguousarray(x, np.float32)
    )
    return Split(torch.from_numpy(values), torch.from_numpy(y.astype(np.int64)))


def _survey(
    layout: Layout, make_split: Callable[[int, Part], Split], path: Path
) -> tuple[int, tuple[int, ...], str]:
    """Read all tasks once: the number of classes, the shape of an input, and the sha256 of all."""
    digest = sha256()
    shape: tuple[int, ...] | None = None
    trained: set[int] = set()
    others: dict[int, str] = {}
    for k, name in enumerate(layout.names):
        for part in PARTS:
            split = make_split(k, part)
            shape = shape or tuple(split.x.shape[1:])
            if tuple(split.x.shape[1:]) != shape:
                here = tuple(split.x.shape[1:])
                raise ValueError(
                    f"Task {name!r} in {path} has {part} inputs of shape {here}, "
                    f"others {shape}: make them alike."
                )
            labels = split.y.unique().tolist()
            if part == "train":
                trained.update(labels)
            others |= dict.fromkeys(labels, f"the {part} part of task {name!r}")
            for tensor, kind in ((split.x, "<f4"), (split.y, "<i8")):
                digest.update(np.ascontiguousarray(tensor.numpy(), kind).data)
    if shape is None:
        raise ValueError(f"{path} holds no task.")
    classes = len(trained)
    for label, at in sorted(others.items()):
        if label >= classes or label not in trained:
            gap = min(set(range(classes + 1)) - trained)
            hint = "labels must run from 0 up without a gap, each with training data"
            raise ValueError(
                f"Label {label}, in {at} of {path}, is out of range: {hint}, and {gap} has none."
            )
    return classes, shape, digest.hexdigest()
