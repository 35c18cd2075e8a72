"""Other definitions of the same words, each under the name of its first author."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .arrays import matrix_of, vector_of

__all__ = [
    "chaudhry_forgetting",
    "diaz_rodriguez_accuracy",
    "lopez_paz_backward_transfer",
    "lopez_paz_forward_transfer",
    "rebuffi_incremental_accuracy",
]


def lopez_paz_backward_transfer(accuracy: ArrayLike) -> float:
    """BWT = 1/(K-1) sum_{j<K} (a[K][j] - a[j][j]).

    The gain of old tasks between their training and the end. Lopez-Paz and Ranzato, Gradient
    Episodic Memory for Continual Learning, 2017.

    >>> lopez_paz_backward_transfer([[1.0, None], [0.5, 0.75]])
    -0.5
    """
    matrix = matrix_of(
        accuracy, "backward transfer", lambda k, j, last: (k == j) | (k == last), at_least=2
    )
    return float((matrix[-1] - matrix.diagonal())[:-1].mean())


def lopez_paz_forward_transfer(accuracy: ArrayLike, untrained: ArrayLike) -> float:
    """FWT = 1/(K-1) sum_{j>1} (a[j-1][j] - b[j]): what earlier tasks teach about the next one.

    Needs the entries just above the diagonal: each task tested right before its training.
    `untrained` is b, the K accuracies of the network before any training; its first entry is not
    used. Lopez-Paz and Ranzato, Gradient Episodic Memory for Continual Learning, 2017.

    >>> lopez_paz_forward_transfer([[1.0, 0.5], [0.5, 0.75]], untrained=[0.25, 0.25])
    0.25
    """
    matrix = matrix_of(accuracy, "forward transfer", lambda k, j, last: j == k + 1, at_least=2)
    return float(
        (
            matrix.diagonal(offset=1) - vector_of(untrained, "untrained", len(matrix), unused=1)[1:]
        ).mean()
    )


def chaudhry_forgetting(accuracy: ArrayLike) -> float:
    """F = 1/(K-1) sum_{j<K} (max_{j<=l<K} a[l][j] - a[K][j]).

    The fall of old tasks from their best to the end. Entries a thin schedule left out do not take
    part in the maximum. Chaudhry, Dokania, Ajanthan and Torr, Riemannian Walk for Incremental
    Learning, 2018.

    >>> chaudhry_forgetting([[0.5, None, None], [0.75, 0.5, None], [0.25, 0.5, 1.0]])
    0.25
    """
    matrix = matrix_of(
        accuracy, "forgetting", lambda k, j, last: (k == j) | (k == last), at_least=2
    )
    learned = np.where(np.tri(len(matrix), dtype=bool), matrix, np.nan)
    return float((np.nanmax(learned[:-1, :-1], axis=0) - matrix[-1, :-1]).mean())


def diaz_rodriguez_accuracy(accuracy: ArrayLike) -> float:
    """A = 2/(K(K+1)) sum_{k>=j} a[k][j]: the mean of all tests of learned tasks.

    Early tasks weigh most. Díaz-Rodríguez, Lomonaco, Filliat and Maltoni, Don't forget, there is
    more than forgetting, 2018.

    >>> diaz_rodriguez_accuracy([[1.0, None], [0.5, 0.75]])
    0.75
    """
    matrix = matrix_of(accuracy, "Díaz-Rodríguez accuracy", lambda k, j, last: k >= j)
    return float(matrix[np.tri(len(matrix), dtype=bool)].mean())


def rebuffi_incremental_accuracy(accuracy: ArrayLike) -> float:
    """1/K sum_k 1/k sum_{j<=k} a[k][j]: the accuracy on the tasks so far, averaged over the run.

    The tasks are taken to be of equal size. Rebuffi, Kolesnikov, Sperl and Lampert, iCaRL:
    Incremental Classifier and Representation Learning, 2017.

    >>> rebuffi_incremental_accuracy([[1.0, None], [0.5, 0.75]])
    0.8125
    """
    matrix = matrix_of(accuracy, "incremental accuracy", lambda k, j, last: k >= j)
    return float(np.mean([row[: k + 1].mean() for k, row in enumerate(matrix)]))
