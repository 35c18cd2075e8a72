"""What labels and predictions give: confusion and macro-F1."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arrays import indices_of

__all__ = ["confusion", "macro_f1"]


def confusion(labels: ArrayLike, predictions: ArrayLike, classes: int) -> NDArray[np.int64]:
    """Count the samples of class i (row) that were taken for class j (column).

    >>> confusion([0, 0, 1, 1], [0, 1, 1, 1], classes=2)
    array([[1, 1],
           [0, 2]])
    """
    if classes < 1:
        raise ValueError(f"classes is {classes}: give the number of classes, 1 or more")
    truth, guess = (
        indices_of(labels, "labels", classes),
        indices_of(predictions, "predictions", classes),
    )
    if len(truth) != len(guess):
        raise ValueError(
            f"labels has {len(truth)} entries and predictions {len(guess)}: "
            "give one of each per sample"
        )
    counts = np.bincount(truth * classes + guess, minlength=classes**2)
    return counts.reshape(classes, classes).astype(np.int64)


def macro_f1(labels: ArrayLike, predictions: ArrayLike, classes: int) -> float:
    """Mean over classes of F1 = 2 TP / (2 TP + FP + FN).

    A class that is in neither labels nor predictions has no F1 and is left out of the mean.

    >>> macro_f1([0, 0, 1, 1], [0, 1, 1, 1], classes=3) == (2 / 3 + 4 / 5) / 2
    True
    """
    counts = confusion(labels, predictions, classes)
    present = counts.sum(axis=0) + counts.sum(axis=1)  # (TP + FP) + (TP + FN)
    return float((2 * counts.diagonal()[present > 0] / present[present > 0]).mean())
