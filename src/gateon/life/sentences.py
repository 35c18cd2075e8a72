"""Texts to vectors, by a language model that never changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..networks import pretrained
from ..networks.text import text_classifier
from ..storage.fetch import Progress

__all__ = ["Sentences"]

LONGEST = 256  # tokens of a text that are read, as MiniLM was trained
AT_ONCE = 64
LAYERS = 4  # hidden states that are read, counted from the last

Text = tuple[str, str | None]


class Sentences:
    """A frozen language model: one vector for a text, of length sqrt(N).

    It is the mean over the tokens in each of the last four layers, each at unit length, one after
    the other: the last layer alone is made for likeness of meaning, and tells labels apart less.

    Args:
        model: minilm, mpnet-base, smollm2-135m, tiny, a directory, or a name on a hub.
        progress: told of what is fetched.
    """

    def __init__(self, model: str, progress: Progress | None = None) -> None:
        place = pretrained.find(model, progress)
        self.tokenizer: Any = pretrained.tokenizer(place)
        self.network = text_classifier(place, 1, dropout=0.0).eval()
        config: Any = self.network.encoder.config
        self.layers = min(LAYERS, config.num_hidden_layers + 1)
        self.width = self.layers * int(config.hidden_size)
        most = pretrained.longest(self.tokenizer, config)
        self.longest = min(LONGEST, most or LONGEST)
        self.digest = _digest(place, self.network.encoder)

    @torch.no_grad()
    def vectors(
        self, texts: Sequence[Text], told: Callable[[int, int], None] | None = None
    ) -> Tensor:
        """One vector a text, (texts, width); `told` hears how many are done, of how many."""
        made = torch.zeros(len(texts), self.width)
        order = sorted(range(len(texts)), key=lambda n: len(texts[n][0]) + len(texts[n][1] or ""))
        for first in range(0, len(order), AT_ONCE):
            rows = order[first : first + AT_ONCE]
            made[rows] = self.network.last_layers(
                self._ids([texts[row] for row in rows]), self.layers
            )
            if told:
                told(first + len(rows), len(order))
        length: float = self.width**0.5
        return F.normalize(made) * length

    def _ids(self, texts: Sequence[Text]) -> Tensor:
        first = [text for text, _ in texts]
        second = [other or "" for _, other in texts] if any(o for _, o in texts) else None
        found = self.tokenizer(
            first,
            second,
            padding=True,
            truncation=True,
            max_length=self.longest,
            return_tensors="pt",
        )
        ids: Tensor = found.input_ids
        return ids


def _digest(place: Path | str, network: torch.nn.Module) -> str:
    """The sha256 of the weights: a model that has changed would read texts differently."""
    file = Path(place) / "model.safetensors"
    if file.is_file():
        return sha256(file.read_bytes()).hexdigest()
    digest = sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
