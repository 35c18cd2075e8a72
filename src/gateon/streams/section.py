"""The section [stream] of a specification: which stream, and what every stream may be made into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .base import Stream, Tasks
from .compose import recurring
from .data.images import augmented
from .registry import is_text, open

__all__ = ["ChosenStream"]


@dataclass(frozen=True)
class ChosenStream:
    """A stream and its options.

    Args:
        name: one of `gateon.streams.STREAMS`, own:PATH or text:PATH.
        repeats: number of rounds in which all tasks are presented.
        augment: vary training images: shift them by up to four pixels and mirror every other one.
        options: arguments of the function that makes it.
    """

    name: str
    repeats: Tasks = 1
    augment: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        """Whether its inputs are texts."""
        return is_text(self.name)

    def make(self, seed: int, model: str | None = None) -> Stream:
        """The stream; `model` is the one whose tokens texts are made of."""
        more = {} if model is None else {"model": model}
        made = open(self.name, seed=seed, **self.options, **more)
        if self.repeats > 1:
            made = recurring(made, repeats=self.repeats)
        return augmented(made) if self.augment else made
