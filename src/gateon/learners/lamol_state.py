"""Which states fit LAMOL: a template of each, with as many tasks and written texts as it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..methods.language.lamol import IGNORED, Signs
from ..storage.states import (
    COUNT,
    GENERATOR,
    Rule,
    Whole,
    check,
    optimizer_like,
    schedule_like,
)

__all__ = ["lamol_like", "room_of"]


def lamol_like(
    state: Mapping[str, Any],
    model: nn.Module,
    signs: Signs,
    new_optimizer: Callable[[Any], Optimizer],
    optimizer: Optimizer,
    schedule: LRScheduler | None,
) -> dict[str, Any]:
    """A template of the states that fit `Lamol`; see `gateon.storage.states`.

    Args:
        state: the state to check, which says how many of everything there are.
        model: the learner's.
        signs: of its tasks and answers.
        new_optimizer: builds an optimizer.
        optimizer: the current one.
        schedule: the current one, if any.
    """
    tasks = state["tasks"]
    check(tasks, Whole(1), "tasks")
    rows, resized = signs.gen(tasks), _names_of_embeddings(model)
    held = {name: value.to("meta") for name, value in model.state_dict().items()}
    grown = {
        name: value.new_empty(rows, *value.shape[1:]) if name in resized else value
        for name, value in held.items()
    }
    parameters = [
        nn.Parameter(grown[name], p.requires_grad) for name, p in model.named_parameters()
    ]
    pseudo, of, context = state["pseudo"], state["of"], Whole(0, tasks - 1)
    room = room_of(model) or 1 << 20
    return {
        "model": grown,
        "optimizer": optimizer_like(
            new_optimizer, parameters, optimizer.param_groups, state["optimizer"]
        ),
        "schedule": schedule_like(schedule),
        "pseudo": Rule(
            lambda value: _are_ids(value, 2, IGNORED, rows) and len(value) == len(of),
            "be texts of known tokens",
        ),
        "of": Rule(
            lambda value: _are_ids(value, 1, 0, tasks) and len(value) == len(pseudo),
            "be a known task for each text",
        ),
        "step": COUNT,
        "written": COUNT,
        "longest": Whole(0, room),
        "seen": COUNT,
        "tasks": Whole(1),
        "learned": [context for _ in state["learned"]],
        "context": None if state["context"] is None else context,
        "generator": GENERATOR,
    }


def room_of(model: Any) -> int | None:
    """How many tokens a model reads; None if it does not say."""
    return getattr(getattr(model, "config", None), "max_position_embeddings", None)


def _names_of_embeddings(model: Any) -> set[str]:
    """Names of tensors with a row for every token."""
    tables = {
        id(layer.weight)
        for layer in (model.get_input_embeddings(), model.get_output_embeddings())
        if layer is not None
    }
    return {name for name, p in model.named_parameters(remove_duplicate=False) if id(p) in tables}


def _are_ids(value: Any, dimensions: int, low: int, below: int) -> bool:
    whole = isinstance(value, Tensor) and value.dtype == torch.long and value.dim() == dimensions
    return bool(whole and ((value >= low) & (value < below)).all())
