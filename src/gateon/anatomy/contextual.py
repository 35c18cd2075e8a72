"""Modules that work otherwise in every context, beside gates and norms: heads of their own for each task, masks, dendrites."""

from __future__ import annotations

import operator
from typing import Any

from torch import nn

__all__ = ["Contextual", "as_context", "contexts_of", "show_context"]


class Contextual(nn.Module):
    """A module with something of its own for every context: a learner sets `context` at a switch, and adds those that are missing.

    Where contexts bring parameters they are added before the optimizer of that context is built,
    and `load_state_dict` must add what the state has more of.

    >>> import torch
    >>> class Scales(Contextual):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale = nn.ParameterList()
    ...     @property
    ...     def contexts(self):
    ...         return len(self.scale)
    ...     def add_context(self):
    ...         self.scale.append(nn.Parameter(torch.ones(1)))
    >>> scales = Scales()
    >>> show_context(nn.Sequential(scales), 1)
    >>> scales.context, scales.contexts
    (1, 2)
    """

    context = 0

    @property
    def contexts(self) -> int:
        """How many there are."""
        raise AttributeError("A Contextual module says how many contexts it has.")

    def add_context(self) -> None:
        """One more."""
        raise AttributeError("A Contextual module can add a context.")


def show_context(model: nn.Module, context: int) -> None:
    """Switch every such module of the model to a context; contexts that do not exist yet are added."""
    for module in model.modules():
        if isinstance(module, Contextual):
            while module.contexts <= context:
                module.add_context()
            module.context = context


def contexts_of(model: nn.Module) -> int | None:
    """How many contexts such modules of the model have; None where there is no such module.

    >>> contexts_of(nn.Linear(2, 2)) is None
    True
    """
    found = [module.contexts for module in model.modules() if isinstance(module, Contextual)]
    return min(found) if found else None


def as_context(context: Any) -> int:
    """A context as a plain number, whether it comes from Python, numpy or torch.

    >>> import torch
    >>> as_context(torch.tensor(3))
    3
    """
    try:
        index = -1 if isinstance(context, bool) else operator.index(context)
    except (TypeError, ValueError, RuntimeError):
        index = -1
    if index < 0:
        raise IndexError(
            f"Context {context!r} does not exist: contexts are whole numbers from 0 on."
        )
    return index
