"""Ridge: classes from fixed features in closed form, one sample after another, nothing stored.

The statistics are sums over samples, so that neither their order nor a later task changes what an
earlier one contributed: nothing is forgotten by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Ridge", "signs"]


class Ridge:
    """Ridge regression from random features to one column per class, as in RanPAC.

    h = relu(S x)                         S: fixed random signs (inputs x width)
    G = sum h h^T,  C = sum h e_y^T       over all samples seen, e_y: one-hot
    scores = h^T W,  W = (G + strength I)^-1 C

    McDonnell et al., "RanPAC: random projections and pre-trained models for continual learning",
    NeurIPS 2023. Signs work as well as normal numbers, and are equal on every machine.

    Args:
        inputs: numbers in one feature vector.
        width: random features. Memory is width^2 + width * classes numbers.
        strength: lambda of the ridge.
        seed: of the signs.

    >>> ridge = Ridge(inputs=2, width=64, strength=1e-3)
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> ridge.add(x, torch.tensor([0, 1, 0]), classes=2)
    >>> ridge.scores(x).argmax(1)
    tensor([0, 1, 0])
    """

    def __init__(
        self, inputs: int, width: int = 4000, strength: float = 100.0, seed: int = 0
    ) -> None:
        for name, value in (("inputs", inputs), ("width", width)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        if not 0 < strength < float("inf"):
            raise ValueError(f"strength must be positive and finite, got {strength}.")
        self.inputs, self.width, self.strength, self.seed = inputs, width, strength, seed
        self.G = torch.zeros(width, width)
        self.C = torch.zeros(width, 0)
        self.counts = torch.zeros(0, dtype=torch.int64)  # samples of each class
        self._signs: Tensor | None = None
        self._weights: Tensor | None = None

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.C.shape[1]

    def features(self, x: Tensor) -> Tensor:
        """h = relu(S x) of feature vectors (samples, inputs)."""
        if self._signs is None:
            self._signs = signs(self.inputs, self.width, self.seed)
        return torch.relu(x.float() @ self._signs)

    @torch.no_grad()
    def add(self, x: Tensor, y: Tensor, classes: int) -> None:
        """Add samples.

        Args:
            x: feature vectors (samples, inputs).
            y: the class of each.
            classes: how many there are by now; new ones get columns of their own.
        """
        if classes < self.classes or (len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes):
            raise ValueError(f"Classes must be from 0 to {classes - 1}, and none may go away.")
        self.C = torch.nn.functional.pad(self.C, (0, classes - self.classes))
        self.counts = torch.nn.functional.pad(self.counts, (0, classes - len(self.counts)))
        for some, labels in zip(x.split(1024), y.split(1024), strict=True):
            h = self.features(some)
            self.G.addmm_(h.T, h)
            self.C.index_add_(1, labels, h.T)
        self.counts += torch.bincount(y, minlength=classes)
        self._weights = None

    @torch.no_grad()
    def weights(self) -> Tensor:
        """W = (G + strength I)^-1 C, solved in double precision when it is first needed."""
        if self._weights is None:
            regular = self.G.double()
            regular.diagonal().add_(self.strength)
            factor = torch.linalg.cholesky(regular)
            self._weights = torch.cholesky_solve(self.C.double(), factor).float()
        return self._weights

    @torch.no_grad()
    def scores(self, x: Tensor) -> Tensor:
        """The score of every class (samples, classes): near 1 for its own samples, else near 0."""
        return self.features(x) @ self.weights()

    def state_dict(self) -> dict[str, Any]:
        """The sums. G is symmetric: its upper triangle is kept."""
        rows, columns = torch.triu_indices(self.width, self.width).unbind()
        return {"G": self.G[rows, columns], "C": self.C.clone(), "counts": self.counts.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        size = self.width * (self.width + 1) // 2
        G, C, counts = state["G"], state["C"], state["counts"]
        fits = G.shape == (size,) and C.dim() == 2 and len(C) == self.width
        if not fits or counts.shape != (C.shape[1],):
            raise ValueError(
                f"These statistics are of other random features than {self.width} of "
                f"{self.inputs} inputs: they do not fit."
            )
        rows, columns = torch.triu_indices(self.width, self.width).unbind()
        self.G[rows, columns] = G
        self.G[columns, rows] = G
        self.C, self.counts, self._weights = C.clone(), counts.clone(), None


def signs(inputs: int, width: int, seed: int) -> Tensor:
    """Random signs (inputs, width): the raw bits of PCG64, equal on every machine and for good.

    >>> signs(2, 4, seed=0)
    tensor([[-1.,  1., -1.,  1.],
            [ 1.,  1.,  1.,  1.]])
    """
    words = np.random.PCG64(seed).random_raw(-(-inputs * width // 64)).astype("<u8")
    bits = np.unpackbits(words.view(np.uint8), count=inputs * width)
    return torch.from_numpy(bits.reshape(inputs, width)).float().mul_(2).sub_(1)
