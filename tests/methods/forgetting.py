"""How much of the first two of three permutations is forgotten, on average, when the last is learned."""

from __future__ import annotations

from functools import cache

import torch
from method_tools import ADAM, digits, learner_of

import gateon
from gateon.networks import mlp


def learn_digits(learner, steps=40):
    """The mean accuracy lost on a task after it was learned."""
    lost = []
    for task, (x, y, _, _) in enumerate(digits()):
        for s in range(steps):
            rows = torch.randint(
                len(y), (64,), generator=torch.Generator().manual_seed(100 * task + s)
            )
            learner.observe(x[rows], y[rows], context=task)
        learner.end_task(task, zip(x.split(1000), y.split(1000), strict=True))
        lost.append(accuracy(learner, task))
    return sum(first - accuracy(learner, task) for task, first in enumerate(lost[:-1])) / (
        len(lost) - 1
    ), lost


def accuracy(learner, task):
    _, _, x, y = digits()[task]
    return float((learner.predict(x, context=task).argmax(1) == y).float().mean())


def forgotten(method, hidden=(100, 100), optimizer=ADAM, **options):
    """What it forgets, and how well it had learned."""
    learner = learner_of(lambda: mlp(784, hidden, 10, norm="none"), method, optimizer, **options)
    lost, first = learn_digits(learner)
    return lost, sum(first) / len(first)


@cache
def forgotten_by_finetuning(hidden=(100, 100)):
    return forgotten(gateon.Finetune(), hidden)[0]
