"""The measures of Barry, Gerstner and Bellec, whose equation numbers are given."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Array, first, floats_of, fractions_of, matrix_of, vector_of

__all__ = [
    "accuracy_deviation",
    "accuracy_deviations",
    "context_correlation",
    "continual_accuracies",
    "continual_accuracy",
    "final_accuracy",
    "forgetting_rate",
    "forgetting_rates",
    "immediate_accuracies",
    "immediate_accuracy",
    "summary",
    "task_locked_accuracy",
]


def immediate_accuracies(accuracy: ArrayLike) -> Array:
    """A^k = a[k][k]: the accuracy on each task right after training it.

    A fall over the tasks shows saturation.

    >>> immediate_accuracies([[1.0, None], [0.5, 0.75]])
    array([1.  , 0.75])
    """
    return matrix_of(accuracy, "immediate accuracy", lambda k, j, last: k == j).diagonal().copy()


def immediate_accuracy(accuracy: ArrayLike) -> float:
    """Mean of `immediate_accuracies` over the tasks.

    >>> immediate_accuracy([[1.0, None], [0.5, 0.75]])
    0.875
    """
    return float(immediate_accuracies(accuracy).mean())


def continual_accuracies(accuracy: ArrayLike) -> Array:
    """A^cont,k = 1/(K-k+1) sum_{k'>=k} a[k'][k] (eq. 15).

    Each task's accuracy from its own training to the end. The immediate accuracy is one of the
    terms. Where a thin schedule left entries out, the mean is over those that exist; a task never
    tested after a later one has no continual accuracy, which is an error.

    >>> continual_accuracies([[1.0, None], [0.5, 0.75]])
    array([0.75, 0.75])
    """
    matrix = matrix_of(accuracy, "continual accuracy", lambda k, j, last: k == j)
    last = len(matrix) - 1
    learned = np.where(np.tri(last + 1, dtype=bool), matrix, np.nan)
    # The diagonal alone would pass off a run that forgets everything as one that forgets nothing.
    untested = np.isfinite(learned).sum(axis=0)[:last] == 1
    if untested.any():
        raise ValueError(
            f"continual accuracy of task {first(untested)[0]} (counted from 0) is undefined, "
            "it was never tested after a later task: test every task at least after the last "
            f"one, in accuracy[{last}]"
        )
    return np.asarray(np.nanmean(learned, axis=0))


def continual_accuracy(accuracy: ArrayLike) -> float:
    """Mean of `continual_accuracies` over the tasks: saturation and forgetting in one number.

    >>> continual_accuracy([[1.0, None], [0.5, 0.75]])
    0.75
    """
    return float(continual_accuracies(accuracy).mean())


def forgetting_rates(accuracy: ArrayLike) -> Array:
    """FR^k = A^k - A^cont,k: what each task lost since its training; below zero it gained.

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
    """1/K sum_j a[K][j]: the mean over all tasks at the end.

    Lopez-Paz and Ranzato (2017) call it ACC.

    >>> final_accuracy([[1.0, None], [0.5, 0.75]])
    0.625
    """
    return float(matrix_of(accuracy, "final accuracy", lambda k, j, last: k == last)[-1].mean())


def accuracy_deviations(accuracy: ArrayLike, isolated: ArrayLike) -> Array:
    """(A^k - isolated^k) / isolated^k: each task against the same network trained on it alone.

    `isolated` holds K accuracies, none of them zero. A positive result is forward transfer.

    >>> accuracy_deviations([[1.0, None], [0.5, 0.75]], isolated=[0.5, 1.0])
    array([ 1.  , -0.25])
    """
    immediate = immediate_accuracies(accuracy)
    alone = vector_of(isolated, "isolated", len(immediate))
    if not alone.all():
        task = first(alone == 0)[0]
        raise ValueError(
            f"isolated[{task}] is zero and nothing is relative to zero: "
            f"check that run of task {task} alone"
        )
    return np.asarray((immediate - alone) / alone)


def accuracy_deviation(accuracy: ArrayLike, isolated: ArrayLike) -> float:
    """(mean A^k - mean isolated) / mean isolated (eq. 16).

    A ratio of means, not the mean of `accuracy_deviations`. `isolated` holds the K accuracies of
    networks trained on one task each.

    >>> accuracy_deviation([[1.0, None], [0.5, 0.75]], isolated=[0.5, 0.5])
    0.75
    """
    immediate = immediate_accuracies(accuracy)
    alone = float(vector_of(isolated, "isolated", len(immediate)).mean())
    if alone == 0:
        raise ValueError(
            "isolated is zero for every task and nothing is relative to zero: "
            "check the isolated runs"
        )
    return (float(immediate.mean()) - alone) / alone


def summary(accuracy: ArrayLike, isolated: ArrayLike | None = None) -> dict[str, float]:
    """The paper's measures and the final accuracy; the accuracy deviation if `isolated` is given.

    >>> for name, value in summary([[1.0, None], [0.5, 0.75]]).items():
    ...     print(name, value)
    immediate_accuracy 0.875
    continual_accuracy 0.75
    forgetting_rate 0.125
    final_accuracy 0.625
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


def task_locked_accuracy(curves: ArrayLike) -> Array:
    """A(step) = 1/(K-1) sum_{k>1} A^k(step) (eq. 17): the mean course of learning after a switch.

    `curves[k][step]` is the accuracy on task k at a step of its own training. The first task
    follows no switch and is left out.

    >>> task_locked_accuracy([[0.0, 1.0], [0.25, 0.75], [0.75, 1.0]])
    array([0.5  , 0.875])
    """
    switched = fractions_of(curves, "curves", ndim=2)[1:]
    if len(switched) == 0:
        raise ValueError(
            "curves holds the first task only, which follows no switch: give two tasks or more"
        )
    if np.isnan(switched).any():
        k, step = first(np.isnan(switched))
        raise ValueError(
            f"curves[{k + 1}][{step}] is NaN: keep only the steps at which every task was tested"
        )
    return np.asarray(switched.mean(axis=0))


def context_correlation(gate_weights: ArrayLike) -> Array:
    """C_ij = cov(b_i, b_j) / (sd_i sd_j) with b = 1 if v > 0 else 0 (eq. 18, 19).

    Do contexts share a layer's units? `gate_weights[i][u]` is v of context i at unit u. A context
    whose gates are all open or all closed has no spread: its correlation with every other context
    is NaN. The diagonal is always 1.

    >>> context_correlation([[0.3, 0.1, -0.2, 0.0], [1.0, 2.0, -3.0, -4.0], [-0.1, -0.1, 0.1, 0.1]])
    array([[ 1.,  1., -1.],
           [ 1.,  1., -1.],
           [-1., -1.,  1.]])
    """
    weights = floats_of(gate_weights, "gate_weights", ndim=2)
    if not np.isfinite(weights).all():
        context, unit = first(~np.isfinite(weights))
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
