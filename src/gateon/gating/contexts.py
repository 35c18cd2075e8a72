"""A whole model in a context: switch it to learn there, or show it for a while.

A model with gates is switched through them, so that their listeners know; any other model through
its modules with per-context state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from ..anatomy.contextual import contextual, show_context
from ..anatomy.norm import ContextNorm
from .gates import gates_of

__all__ = ["context_of", "mixes_contexts", "resume_context", "showing", "switch_context"]


def switch_context(model: nn.Module, context: int) -> None:
    """Learn in a context from now on; those that do not exist yet are added.

    >>> import gateon
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> gates = gateon.attach(model)
    >>> switch_context(model, 2)
    >>> gates.contexts, gates.learning
    (3, 2)
    """
    gates = gates_of(model)
    if gates is None:
        show_context(model, context)
        return
    while gates.contexts <= context:
        gates.add_context()
    gates.switch(context)


def resume_context(model: nn.Module, context: int) -> None:
    """Resume learning in a context: for listeners this is not a switch."""
    gates = gates_of(model)
    if gates is None:
        show_context(model, context)
    else:
        gates.resume(context)


def context_of(model: nn.Module) -> int | Tensor | None:
    """The context a model shows; None if it is the same in all of them.

    >>> context_of(nn.Linear(2, 2)) is None
    True
    """
    gates = gates_of(model)
    if gates is not None:
        return gates.context
    return next((module.context for module in contextual(model)), None)


def mixes_contexts(model: nn.Module) -> bool:
    """Whether one batch may hold samples in different contexts."""
    found = contextual(model)
    by_batch = any(isinstance(m, ContextNorm) and m.statistics == "batch" for m in model.modules())
    return gates_of(model) is not None and all(m.per_sample for m in found) and not by_batch


@contextmanager
def showing(model: nn.Module, context: int | Tensor | None) -> Iterator[None]:
    """Show a model in another context for a while; None leaves it as it is."""
    before, gates = context_of(model), gates_of(model)
    same = isinstance(context, int) and isinstance(before, int) and context == before
    if context is None or before is None or same:
        yield
        return
    show = show_context if gates is None else lambda _, k: gates.show(k)
    show(model, context)
    try:
        yield
    finally:
        show(model, before)
