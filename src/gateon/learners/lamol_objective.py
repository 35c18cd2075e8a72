"""What LAMOL learns, L_QA + lm L_LM, and how it answers: the likelihood of every answer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..methods.language.lamol import IGNORED, Signs, padded
from ..methods.shared.calls import logits

__all__ = ["AT_ONCE", "answer_scores", "device_of", "qa_and_lm"]

AT_ONCE = 16  # texts written or answered at once
MOST = 5.0  # how much more the answer sign counts than any other token, as a target


def qa_and_lm(
    model: nn.Module, signs: Signs, sequences: list[Tensor], tasks: Sequence[int], lm: float
) -> Tensor:
    """L_QA + lm L_LM of whole sequences, each of a task.

    L_QA counts the answer and [END]; L_LM the whole sequence behind the sign of its task.
    """
    device = device_of(model)
    ids, targets = signs.answered(sequences)
    loss = F.cross_entropy(
        _next(model, ids.to(device)).flatten(0, 1),
        targets.to(device).flatten(),
        ignore_index=IGNORED,
    )
    if lm == 0:
        return loss
    begin = torch.tensor([[signs.gen(task)] for task in tasks])
    whole, targets = torch.cat([begin, ids], 1), padded(sequences, IGNORED)
    outputs = _next(model, whole.to(device))
    weight = torch.ones(outputs.shape[-1], device=device)
    weight[signs.ans] = MOST
    written = F.cross_entropy(
        outputs.flatten(0, 1), targets.to(device).flatten(), weight=weight, ignore_index=IGNORED
    )
    return loss + lm * written


@torch.no_grad()
def answer_scores(model: nn.Module, signs: Signs, x: Tensor, task: int) -> Tensor:
    """log P(answer, [END] | text, question) of every class, (N, classes)."""
    training, device = model.training, device_of(model)
    model.eval()
    scores = torch.zeros(len(x), signs.classes)
    for rows in torch.arange(len(x)).split(AT_ONCE):
        for c in range(signs.classes):
            sequences = [signs.sequence(x[row], task, c) for row in rows]
            ids, targets = signs.answered(sequences)
            logs = _next(model, ids.to(device)).log_softmax(-1).cpu()
            found = logs.gather(-1, targets.clamp_min(0)[..., None])[..., 0]
            scores[rows, c] = (found * (targets != IGNORED)).sum(1)
    model.train(training)
    return scores


def device_of(model: nn.Module) -> torch.device:
    """Where the parameters of a model are."""
    return next(model.parameters()).device


def _next(model: nn.Module, ids: Tensor) -> Tensor:
    """Logits of the token that follows each; padding comes last, where a causal model ignores
    it."""
    return logits(model, {"input_ids": ids}).float()
