"""What the tests of methods share: small networks, a stream of easy tasks, going on from a file."""

from __future__ import annotations

from functools import cache, partial

import torch
from torch import nn

import gateon
import rounding
from easy_tasks import batch, flat
from gateon import streams
from gateon.networks import mlp
from gateon.storage import checkpoint

ADAM = partial(torch.optim.Adam, lr=5e-3)
SGD = partial(torch.optim.SGD, lr=0.1)


class Marked(nn.Module):
    """A network with a parameter that is not trained and a buffer that no method may touch."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers
        self.shift = nn.Parameter(torch.linspace(-1, 1, 8), requires_grad=False)
        self.register_buffer("mark", torch.arange(3.0))

    def forward(self, x):
        return self.layers(x + self.shift)


def tiny_mlp():
    return Marked(mlp(8, (24, 24), 3, norm="none"))


def tiny_cnn():
    convolution = nn.Sequential(
        nn.Unflatten(1, (1, 2, 4)), nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
    )
    return Marked(
        nn.Sequential(
            *convolution,
            nn.Flatten(),
            nn.Linear(64, 16),
            nn.Dropout(0.1),
            nn.ReLU(),
            nn.Linear(16, 3),
        )
    )


def learner_of(network, method, optimizer=ADAM, seed=0, **options):
    torch.manual_seed(seed)
    return gateon.Learner(network(), optimizer=optimizer, method=method, **options)


def end(learner, task):
    learner.end_task(task, [batch(task, seed=s) for s in range(3)])


def reloaded(state, path):
    """A state as it comes back from a file."""
    checkpoint.save(state, path)
    return checkpoint.load(path)


def assert_rounded_same(part, whole):
    """In double precision, after three tasks: a sub-network learned what the whole network did."""
    x = batch(9)[0].double()
    for task in range(3):
        rounding.assert_same(part.predict(x, context=task), whole.predict(x, context=task))
    found, expected = (
        flat({"model": one.model.state_dict(), "method": one.method.state_dict()})
        for one in (part, whole)
    )
    rounding.assert_same(found, expected)


@cache
def digits():
    """Three permutations of 5,000 digits: inputs, labels, test inputs and labels of each."""
    stream = streams.permuted_mnist(tasks=3, seed=0, data="mnist-5k")
    return [(t.train.x, t.train.y, t.test.x, t.test.y) for t in stream]


def accuracies(method, optimizer=ADAM, hidden=(64, 64), steps=50, **options):
    """accuracy[k][j]: on permutation j after learning permutation k; one network with one head."""
    learner = learner_of(lambda: mlp(784, hidden, 10, norm="none"), method, optimizer, **options)

    def right(task):
        _, _, x, y = digits()[task]
        return float((learner.predict(x, context=task).argmax(1) == y).float().mean())

    found = []
    for task, (x, y, _, _) in enumerate(digits()):
        for s in range(steps):
            rows = torch.randint(
                len(y), (128,), generator=torch.Generator().manual_seed(100 * task + s)
            )
            learner.observe(x[rows], y[rows], context=task)
        learner.end_task(task, zip(x.split(1000), y.split(1000), strict=True))
        found.append([right(j) for j in range(task + 1)])
    return found


@cache
def finetuned(optimizer=ADAM):
    return accuracies(gateon.Finetune(), optimizer)


def forgets_less(method, optimizer=ADAM, margin=0.03, **options):
    """Whether it ends above fine-tuning by so much, in the mean over all permutations."""
    return (
        sum(accuracies(method, optimizer, **options)[-1])
        > sum(finetuned(optimizer)[-1]) + 3 * margin
    )
