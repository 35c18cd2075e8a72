"""From rows of a table to tensors: the encoder of the data, and for texts the language model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..storage.fetch import Progress
from .encode import Encoder, fit_encoder, restore_encoder
from .encode_features import FeatureEncoder
from .encode_images import ImageEncoder
from .encode_texts import TextEncoder
from .sentences import Sentences
from .settings import Settings
from .table import Table
from .understand import Understanding

__all__ = ["Front"]

SIDE = 28  # pixels of an image by which its task is recognised


class Front:
    """Turns rows into what the network sees, and into what tasks are recognised by.

    Args:
        encoder: of the data, fitted on the first task.
        model: the language model of texts.
        digest: the sha256 that its weights must have; empty if it was not used yet.
    """

    def __init__(self, encoder: Encoder, model: str, digest: str = "") -> None:
        self.encoder, self.model, self.digest = encoder, model, digest
        self.fetching: Progress | None = None  # told when the language model is fetched
        self._sentences: Sentences | None = None

    @classmethod
    def fit(
        cls, table: Table, found: Understanding, rows: NDArray[np.int64], settings: Settings
    ) -> Front:
        """A front fitted on data like this."""
        return cls(fit_encoder(table, found, rows), settings.model)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample, as the network sees it."""
        match self.encoder:
            case TextEncoder():
                return (self.sentences.width,)
            case ImageEncoder(size, channels):
                return channels, size, size
            case FeatureEncoder():
                return (self.encoder.width,)

    @property
    def sentences(self) -> Sentences:
        """The language model, loaded when it is first used."""
        if self._sentences is None:
            loaded = Sentences(self.model, self.fetching)
            if self.digest and loaded.digest != self.digest:
                raise ValueError(
                    f"The language model {self.model} has other weights than when this model "
                    "learned: put the old ones back, or begin a new model."
                )
            self._sentences, self.digest = loaded, loaded.digest
        return self._sentences

    def encode(
        self,
        table: Table,
        inputs: Sequence[str],
        rows: NDArray[np.int64] | None = None,
        told: Callable[[int, int], None] | None = None,
    ) -> tuple[Tensor, list[str]]:
        """Rows as samples, and sentences about what had to be cut or filled in."""
        if isinstance(self.encoder, TextEncoder):
            texts, words = self.encoder.encode(table, inputs, rows)
            return self.sentences.vectors(texts, told), words
        values, words = self.encoder.encode(table, inputs, rows)
        return torch.from_numpy(values), words

    def recognised_by(self, x: Tensor) -> Tensor:
        """Samples as vectors that no learning changes: the small image's pixels, or x itself."""
        if x.dim() == 2:
            return x
        small = F.adaptive_avg_pool2d(x, SIDE) if x.shape[-1] > SIDE else x
        return small.flatten(1)

    def state(self) -> dict[str, Any]:
        """What is kept, as JSON."""
        return {"encoder": self.encoder.state(), "model": self.model, "digest": self.digest}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Front:
        """The front of this state."""
        return cls(restore_encoder(state["encoder"]), state["model"], state["digest"])
