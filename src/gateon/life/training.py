"""Learning one task: passes over its rows, ended when the held-out share gets no better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import torch
import torch.nn.functional as F
from torch import Tensor

from ..streams.draw import permutation
from .network import TaskNetwork

__all__ = ["Course", "train"]

FEWEST = 300  # steps before learning may end early: a small task has short epochs


@dataclass(frozen=True)
class Course:
    """How learning a task went.

    Args:
        epochs: passes over the rows.
        steps: batches.
        best: the epoch whose network was kept.
        loss: of the held-out rows then; of the last epoch's batches where none are held out.
    """

    epochs: int
    steps: int
    best: int
    loss: float


def train(
    network: TaskNetwork,
    context: int,
    rows: Sequence[int],
    x: Tensor,
    y: Tensor,
    held: tuple[Tensor, Tensor],
    known: int,
    key: tuple[str | int, ...],
    told: Callable[[int, int, float], None],
) -> Course:
    """Learn the rows of a task in its context, and keep the network of the best epoch.

    Args:
        network: learns.
        context: of the task.
        rows: of the output layer that belong to the task, those it knew before first.
        x: samples.
        y: which of `rows` each is.
        held: held-out samples and labels, for early stopping.
        known: how many rows the task knew before.
        key: decides the order of the samples.
        told: called with epoch, epochs and loss.
    """
    settings = network.settings
    targets = F.one_hot(y, len(rows)).float()
    if known and len(y[y < known].unique()) < known:  # labels that are away must not be forgotten
        before = network.logits(x, context, rows[:known]).softmax(1)
        targets = torch.cat([targets, before], 1)
    network.begin(context, rows)
    batch = min(settings.batch, len(x))
    per_epoch = max(1, len(x) // batch)
    epochs = max(settings.epochs, min(10 * settings.epochs, -(-FEWEST // per_epoch)))
    best, best_epoch, keep = inf, 0, network.snapshot() if len(held[0]) else None
    steps, loss = 0, 0.0
    for epoch in range(1, epochs + 1):
        order = torch.from_numpy(permutation(len(x), settings.seed, *key, epoch))
        total = 0.0
        for some in order[: per_epoch * batch].split(batch):
            total += network.step(x[some], targets[some], context)
            steps += 1
        loss = total / per_epoch
        if keep is not None:
            logits = network.learning_logits(held[0], context, rows)
            loss = F.cross_entropy(logits, held[1]).item()
            if loss < best:
                best, best_epoch, keep = loss, epoch, network.snapshot()
        told(epoch, epochs, loss)
        late = epoch - best_epoch >= settings.patience
        if keep is not None and late and steps >= FEWEST:
            break
    if keep is None:
        return Course(epoch, steps, epoch, loss)
    keep()
    return Course(epoch, steps, best_epoch, best)
