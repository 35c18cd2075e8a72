"""Forecast the memory and time of a run from a few samples and two trial steps."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..learners.zoo import Zoo
from ..storage.memory import free_bytes
from ..streams import Split, Stream
from .batches import steps_of
from .specification import Specification

__all__ = ["Forecast", "activity_bytes", "forecast", "free_bytes"]


@dataclass(frozen=True)
class Forecast:
    """Bytes and seconds of one step, and seconds of all training; measuring comes on top."""

    step_bytes: int
    step_seconds: float
    seconds: float

    def __str__(self) -> str:
        """As a sentence."""
        hours, minutes = self.seconds / 3600, self.seconds / 60
        whole = (
            f"{hours:,.1f} hours"
            if hours >= 1
            else f"{minutes:.0f} minutes"
            if minutes >= 2
            else f"{self.seconds:.0f} seconds"
        )
        size = (
            f"{self.step_bytes / 1e9:.1f} GB"
            if self.step_bytes >= 1e9
            else f"{self.step_bytes / 1e6:.0f} MB"
        )
        return (
            f"A step takes about {self.step_seconds:.2g} seconds and {size} here: "
            f"projected {whole} of training."
        )


def forecast(specification: Specification, stream: Stream) -> Forecast:
    """Try two steps of a throwaway learner; refuse one that would not fit into memory.

    >>> sizes = {"network.kind": "cnn", "network.channels": (4,), "network.hidden": (8,)}
    >>> asked = Specification.from_options(
    ...     {"stream.name": "split-mnist", "stream.data": "mnist-5k", "training.batch": 20, **sizes}
    ... )
    >>> str(forecast(asked, asked.make_stream())).startswith("A step takes about ")
    True
    """
    learner = specification.with_options({"detector.contexts": "known"}).make_learner(stream)
    training, train = specification.training, stream.split(0, "train")
    batch = training.batch
    parameters = sum(p.numel() * p.element_size() for p in learner.model.parameters())
    # Values, gradients, at most two moments, what obstruction remembers; per parameter also two
    # availabilities.
    copies = 7 if specification.method.name == "p-gateon" else 5
    largest, usual = _typical(train, batch)
    network, at_once = (
        (learner.new_network(), learner.tasks) if isinstance(learner, Zoo) else (learner.model, 1)
    )
    needed = copies * parameters + at_once * batch * activity_bytes(network, train.x[largest])
    free = free_bytes(training.device)
    if free is not None and needed > free:
        raise ValueError(
            f"A step of {batch} samples needs about {needed / 1e9:.1f} GB, "
            f"and {free / 1e9:.1f} GB are free: "
            "choose a smaller batch or a smaller network."
        )
    seconds = 0.0
    for _ in range(2):  # the first also takes out the sub-network and asks for memory
        start = time.perf_counter()
        learner.observe(train.x[usual], train.y[usual], context=0)
        seconds = time.perf_counter() - start
    return Forecast(
        needed,
        seconds,
        seconds * sum(steps_of(stream, batch, training.steps or 0, training.epochs)),
    )


def _typical(train: Split, batch: int) -> tuple[Tensor, Tensor]:
    """Rows of the four samples that need most memory, and of a batch of typical length."""
    if train.lengths is None:
        # whether that is enough is for the run to say
        return torch.arange(4) % len(train), torch.arange(min(batch, len(train)))
    order = train.lengths.argsort()
    return order[-4:], order[max(0, (len(order) - batch) // 2) :][:batch]


def activity_bytes(model: nn.Module, x: Tensor) -> int:
    """Bytes that a sample adds to a step: what the backward pass keeps, its largest ten times over.

    The ten stand for gradients on their way and for the copies convolutions make of their inputs;
    measured, not derived.

    Args:
        model: in training mode; its running statistics move.
        x: at least four samples.

    >>> activity_bytes(nn.Sequential(nn.Linear(10, 100), nn.ReLU()), torch.zeros(4, 10))
    4440
    """
    device = next(model.parameters()).device
    few, many = (_kept(model, x[:count].clone().to(device)) for count in (2, 4))
    return (sum(many) - sum(few)) // 2 + 10 * max(many, default=0) // 4


def _kept(model: nn.Module, x: Tensor) -> Iterable[int]:
    """Sizes of the tensors kept for the backward pass, each once, without parameters."""
    sizes: dict[int, int] = {p.untyped_storage().data_ptr(): 0 for p in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        sizes.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        return tensor

    def give(tensor: Any) -> Any:
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, give):
        # held until all is counted: memory that is given back may be used again
        output = model.train()(x)
    del output
    return sizes.values()
