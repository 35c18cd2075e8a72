"""Measures of continual learning: pure functions of one matrix of accuracies.

`accuracy[k][j]` is the accuracy on task j after training task k, as a fraction, for K tasks counted
from 0. Nested lists, numpy arrays and torch tensors will do. Entries with j > k may be missing
(NaN, or None in a list): a metric asks only for the entries of its formula.

A thin schedule does not test every old task after every task: the entries j < k of such a row k are
missing, the diagonal is always there. Continual accuracy and what follows from it then use the
entries that exist, so compare runs with the same schedule only.

Every metric of the matrix takes macro-F1 in place of accuracy, unchanged (the MF1 columns of the
paper's tables):

>>> labels = [[0, 0, 1, 1], [0, 1, 1, 1]]  # of two tasks' test data
>>> predictions = [[[0, 0, 1, 1], None], [[0, 0, 0, 1], [0, 1, 1, 1]]]  # [k][j]: of task j after training task k
>>> scores = [[macro_f1(y, p, classes=2) if p else None for y, p in zip(labels, row)] for row in predictions]
>>> round(forgetting_rate(scores), 4)
0.0667

Papers use the same word for different things. The plain names here are those of Barry, Gerstner and
Bellec, whose equation numbers are given; other definitions carry their first author's name. In
formulas a[k][j] is `accuracy[k][j]` and tasks count from 1 to K.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_Array = NDArray[np.float64]


def immediate_accuracies(accuracy: ArrayLike) -> _Array:
    """A^k = a[k][k]: the accuracy on each task right after training it. A fall over the tasks shows saturation.

    >>> immediate_accuracies([[1.0, None], [0.5, 0.75]])
    array([1.  , 0.75])
    """
    return _matrix(accuracy, "immediate accuracy", lambda k, j, last: k == j).diagonal().copy()


def immediate_accuracy(accuracy: ArrayLike) -> float:
    """Mean of `immediate_accuracies` over the tasks.

    >>> immediate_accuracy([[1.0, None], [0.5, 0.75]])
    0.875
    """
    return float(immediate_accuracies(accuracy).mean())


def continual_accuracies(accuracy: ArrayLike) -> _Array:
    """A^cont,k = 1/(K-k+1) sum_{k'>=k} a[k'][k] (eq. 15): each task's accuracy from its own training to the end.

    The immediate accuracy is one of the terms. Where a thin schedule left entries out, the mean is
    over those that exist; a task never tested after a later one has no continual accuracy, which is
    an error.

    >>> continual_accuracies([[1.0, None], [0.5, 0.75]])
    array([0.75, 0.75])
    """
    matrix = _matrix(accuracy, "continual accuracy", lambda k, j, last: k == j)
    last = len(matrix) - 1
    learned = np.where(np.tri(last + 1, dtype=bool), matrix, np.nan)
    # The diagonal alone would pass off a run that forgets everything as one that forgets nothing.
    untested = np.isfinite(learned).sum(axis=0)[:last] == 1
    if untested.any():
        raise ValueError(
            f"continual accuracy of task {_first(untested)[0]} (counted from 0) is undefined, it was never tested after"
            f" a later task: test every task at least after the last one, in accuracy[{last}]"
        )
    return np.asarray(np.nanmean(learned, axis=0))


def continual_accuracy(accuracy: ArrayLike) -> float:
    """Mean of `continual_accuracies` over the tasks: saturation and forgetting in one number.

    >>> continual_accuracy([[1.0, None], [0.5, 0.75]])
    0.75
    """
    return float(continual_accuracies(accuracy).mean())


def forgetting_rates(accuracy: ArrayLike) -> _Array:
    """FR^k = A^k - A^cont,k: what each task lost since its training; below zero is backward transfer.

    >>> forgetting_rates([[1.0, None], [0.5, 0.75]])
    array([0.25, 0.  ])
    """
    return np.asarray(immediate_accuracies(accuracy) - continual_accuracies(accuracy))


def forgetting_rate(accuracy: ArrayLike) -> float:
    """Mean of `forgetting_rates` over all K tasks, including the last, which had no time to forget.

    >>> forgetting_rate([[1.0, None], [0.5, 0.75]])
    0.125
    """
    return float(forgetting_rates(accuracy).mean())


def final_accuracy(accuracy: ArrayLike) -> float:
    """1/K sum_j a[K][j]: the mean over all tasks at the end, which Lopez-Paz and Ranzato (2017) call ACC.

    >>> final_accuracy([[1.0, None], [0.5, 0.75]])
    0.625
    """
    return float(_matrix(accuracy, "final accuracy", lambda k, j, last: k == last)[-1].mean())


def accuracy_deviations(accuracy: ArrayLike, isolated: ArrayLike) -> _Array:
    """(A^k - isolated^k) / isolated^k: each task against the same network trained on that task only.

    `isolated` holds K accuracies, none of them zero. A positive result is forward transfer.

    >>> accuracy_deviations([[1.0, None], [0.5, 0.75]], isolated=[0.5, 1.0])
    array([ 1.  , -0.25])
    """
    immediate = immediate_accuracies(accuracy)
    alone = _vector(isolated, "isolated", len(immediate))
    if not alone.all():
        task = _first(alone == 0)[0]
        raise ValueError(
            f"isolated[{task}] is zero and nothing is relative to zero: check that run of task {task} alone"
        )
    return np.asarray((immediate - alone) / alone)


def accuracy_deviation(accuracy: ArrayLike, isolated: ArrayLike) -> float:
    """(mean A^k - mean isolated) / mean isolated (eq. 16): a ratio of means, not the mean of `accuracy_deviations`.

    `isolated` holds the K accuracies of networks trained on one task each.

    >>> accuracy_deviation([[1.0, None], [0.5, 0.75]], isolated=[0.5, 0.5])
    0.75
    """
    immediate = immediate_accuracies(accuracy)
    alone = float(_vector(isolated, "isolated", len(immediate)).mean())
    if alone == 0:
        raise ValueError(
            "isolated is zero for every task and nothing is relative to zero: check the isolated runs"
        )
    return (float(immediate.mean()) - alone) / alone


def summary(accuracy: ArrayLike, isolated: ArrayLike | None = None) -> dict[str, float]:
    """Collect the paper's measures and the final accuracy; the accuracy deviation only if `isolated` is given.

    >>> summary([[1.0, None], [0.5, 0.75]])
    {'immediate_accuracy': 0.875, 'continual_accuracy': 0.75, 'forgetting_rate': 0.125, 'final_accuracy': 0.625}
    """
    measures = {
        "immediate_accuracy": immediate_accuracy(accuracy),
        "continual_accuracy": continual_accuracy(accuracy),
        "forgetting_rate": forgetting_rate(accuracy),
        "final_accuracy": final_accuracy(accuracy),
    }
    if isolated is not None:
        measures["accuracy_deviation"] = accuracy_deviation(accuracy, isolated)
    return measures


def task_locked_accuracy(curves: ArrayLike) -> _Array:
    """A(step) = 1/(K-1) sum_{k>1} A^k(step) (eq. 17): the mean course of learning after a task switch.

    `curves[k][step]` is the accuracy on task k at a step of its own training. The first task
    follows no switch and is left out.

    >>> task_locked_accuracy([[0.0, 1.0], [0.25, 0.75], [0.75, 1.0]])
    array([0.5  , 0.875])
    """
    switched = _fractions(curves, "curves", ndim=2)[1:]
    if len(switched) == 0:
        raise ValueError(
            "curves holds the first task only, which follows no switch: give two tasks or more"
        )
    if np.isnan(switched).any():
        k, step = _first(np.isnan(switched))
        raise ValueError(
            f"curves[{k + 1}][{step}] is NaN: keep only the steps at which every task was tested"
        )
    return np.asarray(switched.mean(axis=0))


def context_correlation(gate_weights: ArrayLike) -> _Array:
    """C_ij = cov(b_i, b_j) / (sd_i sd_j) with b = 1 if v > 0 else 0 (eq. 18, 19): do contexts share a layer's units?

    `gate_weights[i][u]` is v of context i at unit u. A context whose gates are all open or all
    closed has no spread: its correlation with every other context is NaN. The diagonal is always 1.

    >>> context_correlation([[0.3, 0.1, -0.2, 0.0], [1.0, 2.0, -3.0, -4.0], [-0.1, -0.1, 0.1, 0.1]])
    array([[ 1.,  1., -1.],
           [ 1.,  1., -1.],
           [-1., -1.,  1.]])
    """
    weights = _floats(gate_weights, "gate_weights", ndim=2)
    if not np.isfinite(weights).all():
        context, unit = _first(~np.isfinite(weights))
        raise ValueError(
            f"gate_weights[{context}][{unit}] is {weights[context, unit]}: give finite weights"
        )
    used = (weights > 0).astype(np.float64)
    units, count = used.shape[1], used.sum(axis=1)
    # Covariance and variance times units^2 are whole numbers, so that equal gates correlate with
    # exactly 1.
    covariance = units * (used @ used.T) - np.outer(count, count)
    variance = count * (units - count)
    deviations = np.sqrt(np.outer(variance, variance))
    correlation = np.full(deviations.shape, np.nan)
    np.divide(covariance, deviations, out=correlation, where=deviations > 0)
    np.fill_diagonal(correlation, 1.0)
    return correlation


def lopez_paz_backward_transfer(accuracy: ArrayLike) -> float:
    """BWT = 1/(K-1) sum_{j<K} (a[K][j] - a[j][j]): the gain of old tasks between their training and the end.

    Lopez-Paz and Ranzato, Gradient Episodic Memory for Continual Learning, 2017.

    >>> lopez_paz_backward_transfer([[1.0, None], [0.5, 0.75]])
    -0.5
    """
    matrix = _matrix(
        accuracy, "backward transfer", lambda k, j, last: (k == j) | (k == last), at_least=2
    )
    return float((matrix[-1] - matrix.diagonal())[:-1].mean())


def lopez_paz_forward_transfer(accuracy: ArrayLike, untrained: ArrayLike) -> float:
    """FWT = 1/(K-1) sum_{j>1} (a[j-1][j] - b[j]): what earlier tasks alone teach about the next one.

    Needs the entries just above the diagonal: each task tested right before its training.
    `untrained` is b, the K accuracies of the network before any training; its first entry is not
    used. Lopez-Paz and Ranzato, Gradient Episodic Memory for Continual Learning, 2017.

    >>> lopez_paz_forward_transfer([[1.0, 0.5], [0.5, 0.75]], untrained=[0.25, 0.25])
    0.25
    """
    matrix = _matrix(accuracy, "forward transfer", lambda k, j, last: j == k + 1, at_least=2)
    return float(
        (
            matrix.diagonal(offset=1) - _vector(untrained, "untrained", len(matrix), unused=1)[1:]
        ).mean()
    )


def chaudhry_forgetting(accuracy: ArrayLike) -> float:
    """F = 1/(K-1) sum_{j<K} (max_{j<=l<K} a[l][j] - a[K][j]): the fall of old tasks from their best to the end.

    Entries a thin schedule left out do not take part in the maximum. Chaudhry, Dokania, Ajanthan
    and Torr, Riemannian Walk for Incremental Learning, 2018.

    >>> chaudhry_forgetting([[0.5, None, None], [0.75, 0.5, None], [0.25, 0.5, 1.0]])
    0.25
    """
    matrix = _matrix(accuracy, "forgetting", lambda k, j, last: (k == j) | (k == last), at_least=2)
    learned = np.where(np.tri(len(matrix), dtype=bool), matrix, np.nan)
    return float((np.nanmax(learned[:-1, :-1], axis=0) - matrix[-1, :-1]).mean())


def diaz_rodriguez_accuracy(accuracy: ArrayLike) -> float:
    """A = 2/(K(K+1)) sum_{k>=j} a[k][j]: the mean of all tests of learned tasks, so that early tasks weigh most.

    Díaz-Rodríguez, Lomonaco, Filliat and Maltoni, Don't forget, there is more than forgetting,
    2018.

    >>> diaz_rodriguez_accuracy([[1.0, None], [0.5, 0.75]])
    0.75
    """
    matrix = _matrix(accuracy, "Díaz-Rodríguez accuracy", lambda k, j, last: k >= j)
    return float(matrix[np.tri(len(matrix), dtype=bool)].mean())


def rebuffi_incremental_accuracy(accuracy: ArrayLike) -> float:
    """1/K sum_k 1/k sum_{j<=k} a[k][j]: the accuracy on the tasks so far, averaged over the run (tasks of equal size).

    Rebuffi, Kolesnikov, Sperl and Lampert, iCaRL: Incremental Classifier and Representation
    Learning, 2017.

    >>> rebuffi_incremental_accuracy([[1.0, None], [0.5, 0.75]])
    0.8125
    """
    matrix = _matrix(accuracy, "incremental accuracy", lambda k, j, last: k >= j)
    return float(np.mean([row[: k + 1].mean() for k, row in enumerate(matrix)]))


def confusion(labels: ArrayLike, predictions: ArrayLike, classes: int) -> NDArray[np.int64]:
    """Count the samples of class i (row) that were taken for class j (column).

    >>> confusion([0, 0, 1, 1], [0, 1, 1, 1], classes=2)
    array([[1, 1],
           [0, 2]])
    """
    if classes < 1:
        raise ValueError(f"classes is {classes}: give the number of classes, 1 or more")
    truth, guess = (
        _indices(labels, "labels", classes),
        _indices(predictions, "predictions", classes),
    )
    if len(truth) != len(guess):
        raise ValueError(
            f"labels has {len(truth)} entries and predictions {len(guess)}: give one of each per sample"
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


def _first(wrong: NDArray[np.bool_]) -> list[int]:
    """Index of the first true entry."""
    return [int(i) for i in np.argwhere(wrong)[0]]


def _array(values: Any, name: str, ndim: int) -> NDArray[Any]:
    if hasattr(values, "detach"):  # a torch tensor, perhaps a parameter or on another device
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values  # numpy has no bfloat16
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} is no regular array, give every row the same length: {error}"
        ) from error
    if array.ndim != ndim or array.size == 0:
        raise ValueError(
            f"{name} has shape {array.shape}: give {ndim} dimension(s), none of them empty"
        )
    return array


def _floats(values: ArrayLike, name: str, ndim: int) -> _Array:
    array = _array(values, name, ndim)
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} holds something else than numbers, give numbers only: {error}"
        ) from error


def _fractions(values: ArrayLike, name: str, ndim: int) -> _Array:
    array = _floats(values, name, ndim)
    outside = (array < 0) | (array > 1)
    if outside.any():
        place = "".join(f"[{i}]" for i in _first(outside))
        raise ValueError(
            f"{name}{place} is {array[outside][0]:g}, not in 0 to 1: give fractions, not percent"
        )
    return array


def _vector(values: ArrayLike, name: str, tasks: int, unused: int = 0) -> _Array:
    vector = _fractions(values, name, ndim=1)
    if len(vector) != tasks:
        raise ValueError(
            f"{name} has {len(vector)} entries for {tasks} tasks: give one accuracy for each task"
        )
    missing = np.isnan(vector[unused:])
    if missing.any():
        task = _first(missing)[0] + unused
        raise ValueError(
            f"{name}[{task}] is NaN: give the accuracy of task {task} (counted from 0)"
        )
    return vector


def _matrix(
    accuracy: ArrayLike,
    metric: str,
    needed: Callable[[NDArray[np.int_], NDArray[np.int_], int], NDArray[np.bool_]],
    at_least: int = 1,
) -> _Array:
    """Read the matrix of accuracies; `needed(k, j, last)` says which entries the metric cannot do without."""
    matrix = _fractions(accuracy, "accuracy", ndim=2)
    tasks, columns = matrix.shape
    if tasks != columns:
        raise ValueError(
            f"accuracy has shape {matrix.shape}: give a square matrix, a row and a column for each task"
        )
    if tasks < at_least:
        raise ValueError(f"{metric} is undefined for {tasks} task: give {at_least} tasks or more")
    task = np.arange(tasks)
    missing = needed(task[:, None], task, tasks - 1) & np.isnan(matrix)
    if missing.any():
        k, j = _first(missing)
        raise ValueError(
            f"{metric} needs accuracy[{k}][{j}], which is NaN: test task {j} after training task {k} (counted from 0)"
        )
    return matrix


def _indices(values: ArrayLike, name: str, classes: int) -> NDArray[np.int64]:
    array = _array(values, name, ndim=1)
    if array.dtype.kind not in "biu":
        raise ValueError(
            f"{name} holds {array.dtype} values: give class indices, whole numbers from 0 to {classes - 1}"
        )
    outside = (array < 0) | (array >= classes)
    if outside.any():
        i = _first(outside)[0]
        raise ValueError(
            f"{name}[{i}] is {array[i]}, not in 0 to {classes - 1}: check it, or classes={classes}"
        )
    return array.astype(np.int64)
