"""Easy tasks of eight numbers and three classes, and whether two learners learned the same."""

from __future__ import annotations

import torch


def batch(task, n=64, seed=0):
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(1000 * task + seed))
    rule = torch.randn(8, 3, generator=torch.Generator().manual_seed(task))
    return x, (x @ rule).argmax(1)


def train(learner, task, steps=40, start=0):
    return [learner.observe(*batch(task, seed=s), context=task).loss for s in range(start, steps)]


def flat(state, prefix=""):
    if isinstance(state, dict):
        return {
            k: v for key, value in state.items() for k, v in flat(value, f"{prefix}{key}/").items()
        }
    if isinstance(state, list | tuple):
        return {
            k: v for n, value in enumerate(state) for k, v in flat(value, f"{prefix}{n}/").items()
        }
    return {prefix: state}


def assert_same(a, b):
    a, b = flat(a), flat(b)
    assert a.keys() == b.keys()
    for key, value in a.items():
        assert torch.equal(value, b[key]) if isinstance(value, torch.Tensor) else value == b[key], (
            key
        )


class Explodes(torch.autograd.Function):
    """Changes nothing, but has gradients that are not finite."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("inf")
