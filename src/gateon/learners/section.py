"""The section [training] of a specification: how long, with what optimizer, loss and machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..options.kinds import Count, Positive, Share, Within
from .training import Loss, WeightedLoss, optimizer_of, released_loss, schedule_of

__all__ = ["Training"]


@dataclass(frozen=True)
class Training:
    """How a network is trained. Either `steps` or `epochs` is None.

    Args:
        steps: batches per task.
        epochs: passes over the samples of each task, instead of steps.
        batch: samples per batch.
        lr: learning rate.
        optimizer: adam, adamw (with weight decay 0.01), sgd (with momentum 0.9) or plain (sgd
            without), which ogd always has.
        keep_optimizer: keep the state of the optimizer from task to task.
        schedule: learning rate within a task: cosine or linear decay to zero, or constant.
        warm_up: share of a task in which the learning rate rises from zero.
        label_smoothing: share of each label that is spread over all classes.
        class_weights: weigh samples by the inverse frequency of their class in the task.
        loss: cross-entropy, or that of the authors' released code, which applies softmax twice.
        precision: float32, or bf16 for autocast with float32 weights.
        device: where to train: cpu, cuda, mps ...
        threads: number of processor threads; torch decides by default. Results are the same for the
            same number.
    """

    steps: Count | None = 250
    epochs: Count | None = None
    batch: Count = 500
    lr: Positive = 5e-3
    optimizer: Literal["adam", "adamw", "sgd", "plain"] = "adam"
    keep_optimizer: bool = False
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warm_up: Share = 0.0
    label_smoothing: Share = 0.1
    class_weights: bool = False
    loss: Literal["cross-entropy", "released"] = "cross-entropy"
    precision: Literal["float32", "bf16"] = "float32"
    device: str = "cpu"
    threads: Annotated[int, Within(1, 1024)] | None = None

    def make_optimizer(self) -> Callable[[Any], Optimizer]:
        """What builds an optimizer from parameters."""
        return optimizer_of(self.optimizer, self.lr)

    def make_schedule(self) -> Callable[[Optimizer], LRScheduler]:
        """What builds a schedule from an optimizer."""
        return schedule_of(self.schedule, self.steps or 1, self.warm_up)

    def make_loss(self) -> Loss:
        """The loss of outputs and labels."""
        if self.loss == "released":
            return released_loss
        if self.class_weights:
            return WeightedLoss(self.label_smoothing)
        return partial(F.cross_entropy, label_smoothing=self.label_smoothing)

    def find_device(self) -> torch.device:
        """The device; one that is not there is an error."""
        try:
            device = torch.device(self.device)
            torch.zeros(1, device=device)
        except (RuntimeError, AssertionError) as reason:
            raise ValueError(f"There is no device {self.device!r} here: use cpu.") from reason
        return device
