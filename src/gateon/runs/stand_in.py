"""A stream without its data, to make the learner of a run that was recorded."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ..networks import pretrained
from ..networks.section import Language
from ..streams.base import Part, Split, Stream, Task
from .record import Record
from .specification import Specification

__all__ = ["stand_in"]


def stand_in(asked: Specification, record: Record, tasks: int) -> Stream:
    """The stream of a run as far as its record tells; the rest is made of the data when needed.

    A record of an older gateon lacks shape and classes: then it is the stream itself.

    Args:
        asked: what the run was asked for.
        record: of the run.
        tasks: how many tasks it has.
    """
    if record.shape is None or record.classes is None:
        return asked.make_stream()

    @cache
    def real() -> Stream:
        return asked.make_stream()

    def make(k: int) -> Task:
        return real()[k]

    def make_split(k: int, part: Part) -> Split:
        if part != "train" or not any(record.samples[k : k + 1]):
            return real().split(k, part)
        samples = record.samples[k]  # how many there are is all a learner asks for
        return Split(torch.empty(samples, 0), torch.zeros(samples, dtype=torch.int64))

    return Stream(
        name=asked.stream.name,
        tasks=tasks,
        classes=record.classes,
        shape=tuple(record.shape),
        settings=_settings(asked),
        source=record.data,
        make=make,
        make_split=make_split,
    )


def _settings(asked: Specification) -> dict[str, Any]:
    """What a learner asks the settings of a stream of texts for."""
    if not isinstance(asked.network, Language):
        return {"stream": asked.stream.name}
    model = asked.network.model
    pad = pretrained.tokenizer(model).pad_token_id
    return {"stream": asked.stream.name, "model": model, "tokenizer": {"pad": pad}}
