"""CTR: adapters whose tasks share knowledge through capsules, from tasks found to be alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base import Adopt
from .adapters import HatAdapters, started
from .capsules import TaskCapsules
from .frozen import encoder_of

__all__ = ["CTR", "TransferRouting"]

WIDTHS = (3, 4, 5)  # of the filters, in tokens


class TransferRouting(nn.Module):
    """E (s_1, ..., s_J), s_j = sum_i d_i q_ij u_ij: d_i whether task i is of use, q_i how much.

    Args:
        units: of the place.
        capsules: how many semantic capsules.
        size: of every capsule.
        filters: of each width.
        seed: of its weights.

    >>> routing = TransferRouting(8, 3, 3, 10, (0, 0))
    >>> routing(torch.ones(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self, units: int, capsules: int, size: int, filters: int, seed: tuple[int, int]
    ) -> None:
        super().__init__()
        flat, features = capsules * size, filters * len(WIDTHS)
        self.capsules = TaskCapsules(units, capsules, size, seed)
        # Beside the text stands nothing: one whole filter's width of it, so that any more of it
        # changes no maximum.
        self.of_current = nn.ModuleList(
            nn.Conv1d(flat, filters, width, padding=width) for width in WIDTHS
        )
        self.of_each = nn.ModuleList(
            nn.Conv1d(flat, filters, width, padding=width) for width in WIDTHS
        )
        self.mix = nn.Linear(features, filters)
        self.similarity, self.decision = nn.Linear(features, flat), nn.Linear(features, 2)
        self.expand = nn.Linear(flat, units)
        for n, part in enumerate(
            (self.of_current, self.of_each, self.mix, self.similarity, self.decision, self.expand)
        ):
            started(part, (*seed, n, 3))
        self.tokens: Tensor | None = None  # which are no padding, (N, L); shown by the encoder

    def forward(self, x: Tensor) -> Tensor:
        """For every token, with what the whole text says about the tasks."""
        votes = self.capsules(x).flatten(-2)
        of_use, similarity = self.compared(votes)
        shared: Tensor = self.expand((votes * (of_use[..., None] * similarity)[:, None]).sum(2))
        return shared

    def compared(self, votes: Tensor) -> tuple[Tensor, Tensor]:
        """d (N, tasks) of 0 and 1, the active task's 1, and q (N, tasks, capsules * size).

        Votes are (N, tokens, tasks, ...).
        """
        seen = votes if self.tokens is None else votes * self.tokens[:, :, None, None].to(votes)
        texts = seen.permute(0, 2, 3, 1)  # (N, tasks, features, tokens)
        samples, tasks = texts.shape[:2]
        current = torch.cat([conv(texts[:, -1]).relu().amax(-1) for conv in self.of_current], -1)
        about = self.mix(current)[:, None, :, None]
        each = [conv(texts.flatten(0, 1)).unflatten(0, (samples, tasks)) for conv in self.of_each]
        z = torch.cat([(found + about).relu().amax(-1) for found in each], -1)
        previous = self._decided(self.decision(z[:, :-1]))
        return torch.cat([previous, previous.new_ones(samples, 1)], 1), self.similarity(z)

    def _decided(self, scores: Tensor) -> Tensor:
        """0 or 1: drawn in training, with the slope of the soft choice; else the likelier."""
        if self.training:
            return F.gumbel_softmax(scores, hard=True)[..., 0]
        return (scores[..., 0] > scores[..., 1]).to(scores.dtype)


@dataclass
class CTR(HatAdapters):
    """Capsules and transfer routing.

    Adapters, capsules and masks are those of `BCL`, but what tasks share is taken over from tasks
    that are alike, s_j = sum_i d_i q_ij u_ij over i <= k. Filters of 3, 4 and 5 tokens read the
    votes u_k of the active task, g = max over tokens of relu(filters(u_k)), and of each task beside
    it, z_i = max over tokens of relu(filters(u_i) + M g). From z_i come the similarity q_i,
    linearly, and a decision d_i in {0, 1}: drawn by Gumbel softmax in training, the likelier in
    evaluation. The active task always takes its own votes.

    Ke, Liu, Ma, Xu and Shu, "Achieving forgetting prevention and knowledge transfer in continual
    learning", NeurIPS 2021. There as in `HatAdapters`. Padding is left out of what filters read, so
    that a prediction does not depend on how far a text was padded.

    Args:
        capsules: how many semantic capsules, J.
        size: of every capsule.
        filters: number of filters of each of the three widths.

    >>> CTR(width=64).name
    'ctr'
    """

    name = "ctr"

    capsules: int = 3
    size: int = 3
    filters: int = 100

    def prepare(self, model: nn.Module) -> Adopt:
        """Freeze the encoder, put adapters with capsules in, and masks behind their layers."""
        if min(self.capsules, self.size, self.filters) < 1:
            raise ValueError(
                "CTR needs at least one capsule, of at least size 1, and one filter of each width."
            )
        adopt = super().prepare(model)
        encoder = model.get_submodule(encoder_of(model, self.encoder))
        encoder.register_forward_pre_hook(_show_tokens, with_kwargs=True)
        return adopt

    def _shared(self, units: int, seed: tuple[int, int]) -> nn.Module:
        return TransferRouting(units, self.capsules, self.size, self.filters, seed)


def _show_tokens(encoder: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Tell every routing which tokens of the batch are no padding."""
    tokens = named.get("attention_mask", args[1] if len(args) > 1 else None)
    for module in encoder.modules():
        if isinstance(module, TransferRouting):
            module.tokens = tokens
