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
>>> predictions = [[[0, 0, 1, 1], None], [[0, 0, 0, 1], [0, 1, 1, 1]]]  # [k][j]: of j after k
>>> scores = [
...     [macro_f1(y, p, classes=2) if p else None for y, p in zip(labels, row)]
...     for row in predictions
... ]
>>> round(forgetting_rate(scores), 4)
0.0667

Papers use the same word for different things. The plain names here are those of Barry, Gerstner and
Bellec, whose equation numbers are given; other definitions carry their first author's name. In
formulas a[k][j] is `accuracy[k][j]` and tasks count from 1 to K.
"""

from .labels import confusion, macro_f1
from .paper import (
    accuracy_deviation,
    accuracy_deviations,
    context_correlation,
    continual_accuracies,
    continual_accuracy,
    final_accuracy,
    forgetting_rate,
    forgetting_rates,
    immediate_accuracies,
    immediate_accuracy,
    summary,
    task_locked_accuracy,
)
from .published import (
    chaudhry_forgetting,
    diaz_rodriguez_accuracy,
    lopez_paz_backward_transfer,
    lopez_paz_forward_transfer,
    rebuffi_incremental_accuracy,
)

__all__ = [
    "accuracy_deviation",
    "accuracy_deviations",
    "chaudhry_forgetting",
    "confusion",
    "context_correlation",
    "continual_accuracies",
    "continual_accuracy",
    "diaz_rodriguez_accuracy",
    "final_accuracy",
    "forgetting_rate",
    "forgetting_rates",
    "immediate_accuracies",
    "immediate_accuracy",
    "lopez_paz_backward_transfer",
    "lopez_paz_forward_transfer",
    "macro_f1",
    "rebuffi_incremental_accuracy",
    "summary",
    "task_locked_accuracy",
]
