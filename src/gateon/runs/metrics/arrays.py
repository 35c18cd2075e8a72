"""Arrays of numbers out of whatever was given, or an error that says what to give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Array",
    "array_of",
    "first",
    "floats_of",
    "fractions_of",
    "indices_of",
    "matrix_of",
    "vector_of",
]

Array = NDArray[np.float64]


def first(wrong: NDArray[np.bool_]) -> list[int]:
    """Index of the first true entry."""
    return [int(i) for i in np.argwhere(wrong)[0]]


def array_of(values: Any, name: str, ndim: int) -> NDArray[Any]:
    """A regular array of so many dimensions, none of them empty."""
    if hasattr(values, "detach"):  # a torch tensor, perhaps a parameter or on another device
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values  # numpy has no bfloat16
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} is not a regular array, give every row the same length: {error}"
        ) from error
    if array.ndim != ndim or array.size == 0:
        raise ValueError(
            f"{name} has shape {array.shape}: give {ndim} dimension(s), none of them empty"
        )
    return array


def floats_of(values: ArrayLike, name: str, ndim: int) -> Array:
    """An array of numbers."""
    array = array_of(values, name, ndim)
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} holds something else than numbers, give numbers only: {error}"
        ) from error


def fractions_of(values: ArrayLike, name: str, ndim: int) -> Array:
    """Numbers from 0 to 1, or NaN."""
    array = floats_of(values, name, ndim)
    outside = (array < 0) | (array > 1)
    if outside.any():
        place = "".join(f"[{i}]" for i in first(outside))
        raise ValueError(
            f"{name}{place} is {array[outside][0]:g}, not in 0 to 1: give fractions, not percent"
        )
    return array


def vector_of(values: ArrayLike, name: str, tasks: int, unused: int = 0) -> Array:
    """A fraction for each task; the first `unused` may be missing."""
    vector = fractions_of(values, name, ndim=1)
    if len(vector) != tasks:
        raise ValueError(
            f"{name} has {len(vector)} entries for {tasks} tasks: give one accuracy for each task"
        )
    missing = np.isnan(vector[unused:])
    if missing.any():
        task = first(missing)[0] + unused
        raise ValueError(
            f"{name}[{task}] is NaN: give the accuracy of task {task} (counted from 0)"
        )
    return vector


def matrix_of(
    accuracy: ArrayLike,
    metric: str,
    needed: Callable[[NDArray[np.int_], NDArray[np.int_], int], NDArray[np.bool_]],
    at_least: int = 1,
) -> Array:
    """The matrix of accuracies; `needed(k, j, last)` says which entries must be there."""
    matrix = fractions_of(accuracy, "accuracy", ndim=2)
    tasks, columns = matrix.shape
    if tasks != columns:
        raise ValueError(
            f"accuracy has shape {matrix.shape}: give a square matrix, "
            "a row and a column for each task"
        )
    if tasks < at_least:
        raise ValueError(f"{metric} is undefined for {tasks} task: give {at_least} tasks or more")
    task = np.arange(tasks)
    missing = needed(task[:, None], task, tasks - 1) & np.isnan(matrix)
    if missing.any():
        k, j = first(missing)
        raise ValueError(
            f"{metric} needs accuracy[{k}][{j}], which is NaN: "
            f"test task {j} after training task {k} (counted from 0)"
        )
    return matrix


def indices_of(values: ArrayLike, name: str, classes: int) -> NDArray[np.int64]:
    """Numbers of classes."""
    array = array_of(values, name, ndim=1)
    if array.dtype.kind not in "biu":
        raise ValueError(
            f"{name} holds {array.dtype} values: "
            f"give class indices, whole numbers from 0 to {classes - 1}"
        )
    outside = (array < 0) | (array >= classes)
    if outside.any():
        i = first(outside)[0]
        raise ValueError(
            f"{name}[{i}] is {array[i]}, not in 0 to {classes - 1}: check it, or classes={classes}"
        )
    return array.astype(np.int64)
