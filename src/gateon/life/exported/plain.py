"""The answers of one task as plain torch modules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Answer", "FeatureTask", "ImageTask", "TextTask", "perceptron"]


def perceptron(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with a ReLU between each two.

    >>> perceptron((4, 3, 2))
    Sequential(
      (0): Linear(in_features=4, out_features=3, bias=True)
      (1): ReLU()
      (2): Linear(in_features=3, out_features=2, bias=True)
    )
    """
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Answer(nn.Module):
    """log p(label | x) of one task, from a ridge regression and a network for each of its parts.

    With s the scores of the ridge, z_k the outputs of the network of part k,

        p(k | x)    = sum over rows r of k of softmax(a s)_r
        p(r | x, k) = softmax_k((log_softmax_k(b s)_r + log_softmax_k(c z_k)_r) / 2)

    and labels are sums over their rows; most tasks have one part and a row for each label.

    Args:
        inputs: numbers by which the ridge knows a sample.
        width: its random features.
        labels: of the rows of each part, as numbers.
        networks: one for each part.
    """

    signs: Tensor
    weights: Tensor
    scales: Tensor
    label_of: Tensor

    def __init__(
        self,
        inputs: int,
        width: int,
        labels: Sequence[Sequence[int]],
        networks: Sequence[nn.Module],
    ) -> None:
        super().__init__()
        self.parts = [len(rows) for rows in labels]
        of_row = [label for rows in labels for label in rows]
        places = [[float(label == number) for number in range(1 + max(of_row))] for label in of_row]
        self.register_buffer("signs", torch.zeros(inputs, width, dtype=torch.int8))
        self.register_buffer("weights", torch.zeros(width, len(of_row)))
        self.register_buffer("scales", torch.ones(3))  # a, b, c
        self.register_buffer("label_of", torch.tensor(places))
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor, known_by: Tensor) -> Tensor:
        """log p(label | x), (samples, labels).

        Args:
            x: what the networks see.
            known_by: what the ridge knows a sample by (samples, inputs).
        """
        length = self.signs.shape[0] ** 0.5
        h = torch.relu(known_by / length @ self.signs.to(known_by.dtype))
        scores = h @ self.weights
        a, b, c = self.scales.unbind()
        rows = []
        shares = (a * scores).softmax(1).split(self.parts, 1)
        for network, share, own in zip(
            self.networks, shares, scores.split(self.parts, 1), strict=True
        ):
            opinion = ((b * own).log_softmax(1) + (c * network(x)).log_softmax(1)) / 2
            rows.append(share.sum(1, keepdim=True) * opinion.softmax(1))
        return (torch.cat(rows, 1) @ self.label_of).clamp_min(1e-30).log()


class TextTask(nn.Module):
    """Token ids of texts to log p(label), by the last layers of a frozen language model.

    Args:
        encoder: the language model.
        layers: how many of its last layers are read.
        answer: see `Answer`.
    """

    def __init__(self, encoder: nn.Module, layers: int, answer: Answer) -> None:
        super().__init__()
        self.encoder, self.layers, self.answer = encoder, layers, answer

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """log p(label | text), (texts, labels)."""
        read = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True
        )
        mask = attention_mask.unsqueeze(-1).float()
        means = [
            F.normalize((states * mask).sum(1) / mask.sum(1).clamp_min(1), dim=1)
            for states in read.hidden_states[-self.layers :]
        ]
        x = torch.cat(means, 1)
        x = F.normalize(x, dim=1) * x.shape[1] ** 0.5
        found: Tensor = self.answer(x, x)
        return found


class ImageTask(nn.Module):
    """Images (N, channels, size, size) from 0 to 1 to log p(label).

    Args:
        side: pixels of the small image that the ridge sees.
        answer: see `Answer`.
    """

    def __init__(self, side: int, answer: Answer) -> None:
        super().__init__()
        self.side, self.answer = side, answer

    def forward(self, images: Tensor) -> Tensor:
        """log p(label | image), (images, labels)."""
        small = images
        if images.shape[-1] > self.side:
            small = F.adaptive_avg_pool2d(images, self.side)
        found: Tensor = self.answer(images, small.flatten(1))
        return found


class FeatureTask(nn.Module):
    """Numbers with NaN for what is missing, and numbers of categories, to log p(label).

    A number x becomes (x - mean) / deviation, within a bound, and a mark for what is missing. A
    category becomes a place for each known word, one for new words and one for missing ones; it is
    given as the number of its place.

    Args:
        numbers: how many columns of numbers there are.
        places: how many places each column of categories has.
        farthest: deviations a number may be away from the mean.
        answer: see `Answer`.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, numbers: int, places: Sequence[int], farthest: float, answer: Answer
    ) -> None:
        super().__init__()
        self.places, self.farthest, self.answer = list(places), farthest, answer
        self.register_buffer("mean", torch.zeros(numbers, dtype=torch.float64))
        self.register_buffer("deviation", torch.ones(numbers, dtype=torch.float64))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """log p(label | row), (rows, labels)."""
        scaled = (numbers.double() - self.mean) / self.deviation
        missing = scaled.isnan()
        clipped = torch.where(missing, 0.0, scaled).clamp(-self.farthest, self.farthest)
        columns = [torch.stack([clipped.float(), missing.float()], 2).flatten(1)]
        for column, places in enumerate(self.places):
            columns.append(
                (
                    categories[:, column, None] == torch.arange(places, device=categories.device)
                ).float()
            )
        x = torch.cat(columns, 1)
        found: Tensor = self.answer(x, x)
        return found
