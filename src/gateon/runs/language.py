"""What is particular about streams of texts: their usual options, their network, how GateON is set up on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..learners.lamol import Lamol
from ..methods import GateON
from ..methods.gateon import first_rate
from ..networks import text_classifier
from ..networks.heads import TaskHeads
from ..networks.pretrained import config, find, with_weights
from ..networks.text import Pooling
from ..streams import Stream
from .batches import steps_of

__all__ = [
    "ADAPTERS",
    "USUAL",
    "is_text",
    "lamol",
    "language_network",
    "stream_options",
    "with_first_rate",
]

TEXTS = ("asc", "dsc", "news20", "made-reviews")
# methods that have a head for every task in their publication
ADAPTERS = (
    "hat-adapters",
    "bcl",
    "ctr",
)
# How pretrained language models are fine-tuned as a rule: what the command line starts from for a
# stream of texts.
USUAL: Mapping[str, Any] = {"epochs": 3, "batch": 32, "lr": 1e-4, "optimizer": "adamw"}
OPTIONS = ("model", "order", "length", "limit", "keep_headers", "random_parts")


def is_text(stream: str) -> bool:
    """Whether a stream, by its name on the command line, is one of texts.

    >>> is_text("asc"), is_text("text:mine.jsonl"), is_text("split-mnist")
    (True, True, False)
    """
    return stream in TEXTS or stream.startswith("text:")


def stream_options(stream: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Those options of texts that were asked for; where the stream has none, an error that says so.

    >>> stream_options("split-mnist", {"model": "minilm", "order": None})
    Traceback (most recent call last):
    ...
    ValueError: model is for streams of texts, not for split-mnist: leave it out.
    """
    given = {
        name: asked[name]
        for name in OPTIONS
        if asked.get(name) is not None and asked[name] is not False
    }
    for name in given:
        if not is_text(stream):
            raise ValueError(f"{name} is for streams of texts, not for {stream}: leave it out.")
    if given.pop("random_parts", False):
        given["by_date"] = False
    return given


def _tokens_of(stream: Stream) -> tuple[str, int]:
    """The model whose tokens a stream is made of, and the id of its padding."""
    settings = stream.settings
    while "of" in settings:  # such as one whose tasks return
        settings = settings["of"]
    return settings["model"], settings["tokenizer"]["pad"]


def language_network(stream: Stream, pooling: Pooling | None, *, heads: bool) -> nn.Module:
    """A text classifier with an output for each class, on the model whose tokens the stream is made of.

    Args:
        stream: of texts.
        pooling: of the tokens; by default their mean for MiniLM, which was trained so, and the
            first one for others.
        heads: one for every task.
    """
    model, _ = _tokens_of(stream)
    usual: Pooling = "mean" if model in ("minilm", "tiny") else "first"
    made = text_classifier(model, stream.classes, pooling=pooling or usual)
    if heads:
        made.head = TaskHeads(made.head.in_features, stream.classes, len(stream))
    return made


def lamol(
    stream: Stream,
    optimizer: Callable[[Any], Optimizer],
    schedule: Callable[[Optimizer], LRScheduler],
    seed: int,
) -> Lamol:
    """LAMOL with the causal language model whose tokens the stream is made of."""
    model, pad = _tokens_of(stream)
    kind = getattr(config(model), "architectures", None) or ["an encoder"]
    if not any("LMHead" in name or "CausalLM" in name for name in kind):
        raise ValueError(
            f"LAMOL needs a causal language model, and {model} is {kind[0]}: choose a model such as gpt2."
        )
    from transformers import AutoModelForCausalLM

    samples = [len(stream.split(k, "train")) for k in range(len(stream))]
    made = with_weights(AutoModelForCausalLM, find(model), {"dtype": torch.float32})
    return Lamol(
        made,
        optimizer=optimizer,
        schedule=schedule,
        samples=samples,
        classes=stream.classes,
        pad=pad,
        seed=seed,
    )


def with_first_rate(
    method: GateON, stream: Stream, batch: int, steps: int, epochs: int | None
) -> GateON:
    """eta_A twice as high in a first task that is short, as in the paper."""
    if not isinstance(method.rate, float):
        return method
    return replace(
        method, first_rate=first_rate(steps_of(stream, batch, steps, epochs)[0], method.rate)
    )
