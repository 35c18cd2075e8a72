"""From a specification to its method, network and learner."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..learners.isolated import Isolated
from ..learners.lamol import Lamol
from ..learners.learner import Learner
from ..learners.protocol import AnyLearner
from ..learners.training import Loss
from ..learners.zoo import Zoo
from ..methods import Finetune, GateON, Method
from ..methods.apart import InZoo
from ..methods.gateon import first_rate
from ..methods.registry import METHODS, Fact
from ..methods.shared.places import follow_norms
from ..networks.pretrained import config, find, with_weights
from ..parallel.processes import current
from ..storage.memory import free_bytes
from ..streams.base import Stream
from .batches import steps_of

if TYPE_CHECKING:
    from .specification import Specification

__all__ = ["make_learner", "make_method", "needs_label"]


def make_learner(asked: Specification, stream: Stream) -> AnyLearner:
    """The learner of a specification, for the stream's inputs and classes."""
    if asked.method.name == "isolated":
        return Isolated(partial(_learner, asked, stream, alone=True))
    if asked.method.name == "zoo":
        return _zoo(asked, stream)
    if asked.method.name == "lamol":
        return _lamol(asked, stream)
    return _learner(asked, stream)


def make_method(
    asked: Specification, stream: Stream | None = None, loss: Loss | None = None
) -> Method:
    """The method; without a stream, what the stream decides is left at its default.

    Args:
        asked: the specification.
        stream: what it will learn.
        loss: the learner's, for methods that learn stored samples: both are told of each task.
    """
    facts = _facts(asked, stream, loss or asked.training.make_loss())
    method = asked.method.make(facts, asked.seed)
    if isinstance(method, GateON) and method.encoder and stream is not None:
        return _with_first_rate(asked, method, stream)
    return method


def needs_label(asked: Specification) -> bool:
    """Whether the task must be told at prediction: by the method, its heads or its norms."""
    norm = getattr(asked.network, "norm", "none")
    own_norms = norm == "context" and METHODS[asked.method.name].norms != "shared"
    return asked.method.needs("label") or asked.network.heads == "per-task" or own_norms


def _facts(asked: Specification, stream: Stream | None, loss: Loss) -> dict[Fact, Any]:
    """The facts about a run that methods need."""
    training = asked.training
    facts: dict[Fact, Any] = {"language": asked.stream.is_text, "loss": loss}
    if stream is None:
        return facts
    steps = _steps(asked, stream, epochs=training.epochs and 1)
    return facts | {
        "steps": steps,
        "task_steps": (training.epochs or 1) * steps,
        "tasks": len(stream),
        "inputs": prod(stream.shape),
    }


def _steps(asked: Specification, stream: Stream, epochs: int | None) -> int:
    """The batches of the first task."""
    return steps_of(stream, asked.training.batch, asked.training.steps or 0, epochs)[0]


def _with_first_rate(asked: Specification, method: GateON, stream: Stream) -> GateON:
    """eta_A twice as high in a first task that is short, as in the paper (Methods, BERT)."""
    if not isinstance(method.rate, float) or method.first_rate is not None:
        return method
    steps = _steps(asked, stream, asked.training.epochs)
    return replace(method, first_rate=first_rate(steps, method.rate))


def _learner(asked: Specification, stream: Stream, *, alone: bool = False) -> Learner:
    """The learner of one network; `alone`: it learns one task, without a method."""
    model = _network(asked, stream)
    if not alone and METHODS[asked.method.name].norms == "followed":
        follow_norms(model)
    training = asked.training
    loss = training.make_loss()
    return Learner(
        model,
        optimizer=training.make_optimizer(),
        method=Finetune() if alone else make_method(asked, stream, loss),
        schedule=training.make_schedule(),
        loss=loss,
        precision=training.precision,
        contexts=asked.detector.make(),
        keep_optimizer=training.keep_optimizer,
        processes=current(),
    )


def _zoo(asked: Specification, stream: Stream) -> Zoo:
    training, method = asked.training, asked.method.make({}, asked.seed)
    assert isinstance(method, InZoo)
    _start(asked, stream)
    return Zoo(
        lambda: _made(asked, stream).to(training.find_device()),
        optimizer=training.make_optimizer(),
        schedule=training.make_schedule(),
        loss=training.make_loss(),
        tasks=method.tasks,
        keep=method.memory,
        seed=asked.seed,
    )


def _lamol(asked: Specification, stream: Stream) -> Lamol:
    """LAMOL with the causal language model whose tokens the stream is made of."""
    settings = stream.settings
    while "of" in settings:  # such as one whose tasks return
        settings = settings["of"]
    model, pad = settings["model"], settings["tokenizer"]["pad"]
    kind = getattr(config(model), "architectures", None) or ["an encoder"]
    if not any("LMHead" in name or "CausalLM" in name for name in kind):
        raise ValueError(
            f"LAMOL needs a causal language model, and {model} is {kind[0]}: "
            "choose --network.model gpt2 or another one."
        )
    from transformers import AutoModelForCausalLM

    _settle(asked)
    return Lamol(
        with_weights(AutoModelForCausalLM, find(model), {"dtype": torch.float32}),
        optimizer=asked.training.make_optimizer(),
        schedule=asked.training.make_schedule(),
        samples=[len(stream.split(k, "train")) for k in range(len(stream))],
        classes=stream.classes,
        pad=pad,
        seed=asked.seed,
    )


def _network(asked: Specification, stream: Stream) -> nn.Module:
    """The network on its device, drawn by the seed."""
    _start(asked, stream)
    return _made(asked, stream).to(asked.training.find_device())


def _made(asked: Specification, stream: Stream) -> nn.Module:
    return asked.network.make(stream.shape, stream.classes, len(stream))


def _start(asked: Specification, stream: Stream) -> None:
    """Set threads and seed, and refuse what this machine lacks before anything is built."""
    _settle(asked)
    asked.training.find_device()
    _check_room(asked, stream)


def _settle(asked: Specification) -> None:
    if asked.training.threads is not None:
        torch.set_num_threads(asked.training.threads)
    torch.manual_seed(asked.seed)


def _check_room(asked: Specification, stream: Stream) -> None:
    """Refuse a network whose weights, and what is kept of each, exceed the free memory."""
    free = None if asked.stream.is_text else free_bytes(asked.training.device)
    if free is None:
        return
    try:
        with torch.device("meta"):
            made = _made(asked, stream)
        needed = 2 * sum(p.numel() * p.element_size() for p in made.parameters())
    except RuntimeError:  # more than a number of 64 bits counts
        needed = 1 << 63
    if needed > free:
        hidden = getattr(asked.network, "hidden", ())
        sizes = f" (hidden {'x'.join(map(str, hidden))})" if hidden else ""
        raise ValueError(
            f"A network {asked.network.kind} of this size{sizes} needs at least "
            f"{needed / 1e9:.3g} GB, and {free / 1e9:.1f} GB are free: choose a smaller one."
        )
