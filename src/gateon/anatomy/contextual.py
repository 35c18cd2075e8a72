"""Modules with per-context state, and the one walker that switches them all.

Gates, norms, task heads, masks, prototypes and capsules keep something of their own for every
context. Each says how many contexts it has, adds one, and shows one; nothing else switches a model.
"""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor, nn

__all__ = [
    "Contextual",
    "add_contexts",
    "as_context",
    "contexts_of",
    "contextual",
    "own_by_context",
    "show_context",
]


class Contextual(nn.Module):
    """A module with state of its own for every context.

    A subclass defines `contexts` and `add_context`, and reads `self.context`, which `show` sets.
    Contexts that bring parameters are added before the optimizer of that context is built, and
    `load_state_dict` must add what the state has more of.

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

    context: Any = 0  # the one that is shown: a number, or a tensor with one for each sample
    per_sample = False  # whether every sample of a batch may be in a context of its own
    shared = False  # whether all contexts share its parameters, as the scale of a norm

    @property
    def contexts(self) -> int | None:
        """How many there are; None if this module is not switched with the others."""
        raise AttributeError("A Contextual module must say how many contexts it has.")

    def add_context(self) -> None:
        """Add one context."""
        raise AttributeError("A Contextual module must be able to add a context.")

    def show(self, context: int | Tensor) -> None:
        """Compute in this context from now on."""
        self.context = as_context(context)


def contextual(model: nn.Module) -> list[Contextual]:
    """The modules of a model that are switched from context to context.

    >>> contextual(nn.Linear(2, 2))
    []
    """
    return [
        module
        for module in model.modules()
        if isinstance(module, Contextual) and module.contexts is not None
    ]


def show_context(model: nn.Module, context: int | Tensor) -> None:
    """Show a context in every module that has several; contexts that do not exist yet are added.

    A model with gates is switched by them (`gateon.gating.contexts`), so that whoever listens to
    the gates knows.

    Args:
        model: what is switched.
        context: one for all samples, or one for each.
    """
    found = contextual(model)
    highest = context
    if isinstance(context, Tensor):
        alone = next((m for m in found if not m.per_sample), None) if context.dim() else None
        if alone is not None:
            raise ValueError(
                f"{type(alone).__name__} works in one context at a time: "
                "switch to one context for all samples."
            )
        highest = int(context.max())
    add_contexts(model, highest + 1)
    for module in found:
        module.show(context)


def add_contexts(model: nn.Module, contexts: int | Tensor) -> None:
    """Give every module with per-context state at least so many contexts."""
    for module in contextual(model):
        while module.contexts is not None and module.contexts < contexts:
            module.add_context()


def contexts_of(model: nn.Module) -> int | None:
    """How many contexts a model has; None if it is the same in all of them.

    >>> contexts_of(nn.Linear(2, 2)) is None
    True
    """
    return min(
        (m.contexts for m in contextual(model) if m.contexts is not None),
        default=None,
    )


def own_by_context(model: nn.Module) -> set[nn.Parameter]:
    """The parameters that belong to one context each, as those of task heads do.

    >>> own_by_context(nn.Linear(2, 2))
    set()
    """
    return {
        parameter
        for module in model.modules()
        if isinstance(module, Contextual) and not module.shared
        for parameter in module.parameters()
    }


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
