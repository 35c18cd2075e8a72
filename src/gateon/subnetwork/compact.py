"""The active sub-network of a context as a model of its own, to train or to deploy."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import nn

from ..anatomy.contextual import as_context
from ..anatomy.shards import check_unsharded
from ..anatomy.wiring import outputs_on
from ..availability.obstruct import obstruction_of
from ..gating.gates import Gates, gates_of
from .availabilities import Availabilities
from .cut import cut_for
from .fold import fold as folded
from .part import Part, take_part

__all__ = ["compact"]


def compact(
    model: nn.Module, context: int, *, fold: bool = False, example: Any = None
) -> nn.Module:
    """The active sub-network of a context, as a smaller module of the same class.

    Args:
        model: a model with gates.
        context: which one.
        fold: False: with gates and one context. Train it as you like, then call its `write_back()`:
            what it learned is then in the whole model, which is switched to that context. If the
            model's updates are obstructed it has its part of the availabilities too:
            `small.obstruction.follow(optimizer)` before training. True: for deployment, in
            evaluation mode, with gains folded into weights and nothing of gateon inside; tied
            weights are untied where gains differ.
        example: one batch of input, for the result to be compared with the whole model: a
            ValueError if their outputs differ. A folded model of transformers is compared by its
            own `dummy_inputs` where none is given.

    >>> import gateon
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> gates = gateon.attach(model, contexts=3, density=0.5)
    >>> small = compact(model, context=1)
    >>> small[0].weight.shape, small[2].weight.shape
    (torch.Size([4, 4]), torch.Size([2, 4]))
    >>> gates.switch(1); torch.allclose(small(torch.ones(1, 4)), model(torch.ones(1, 4)))
    True
    """
    gates = gates_of(model)
    if gates is None:
        raise ValueError("This model has no gates, and so no sub-networks: attach() gates first.")
    check_unsharded(
        gates.model,
        "a sub-network needs whole parameters: train at full width, in a loop of your own",
    )
    context = as_context(context)
    if not 0 <= context < gates.contexts:
        raise IndexError(
            f"Context {context} does not exist: there are {gates.contexts}; add_context() adds one."
        )
    whole = None if fold else obstruction_of(gates)
    kept = None if whole is None else Availabilities(whole)
    part = take_part(gates, cut_for(gates, context), kept, trained=not fold)
    small: Any = part.network
    if fold:
        folded(small.eval())
        example = _own_example(model) if example is None else example
    if example is not None:
        _check_same(gates, context, small, example)
    if kept is not None:
        small.obstruction = kept.part
        small.context_gates.orphaned = True  # until its obstruction follows an optimizer
    if not fold:
        small.write_back = partial(_write_back, part)
    return part.network


def _write_back(part: Part) -> None:
    if part.gates.learning != part.cut.context:
        part.gates.switch(part.cut.context)  # it is this context that has been learned
    part.write_back()


def _own_example(model: nn.Module) -> Any:
    """The example of their input that models of transformers carry, if it works."""
    try:
        example: Any = model.dummy_inputs
        outputs_on(model, example)
    except Exception:  # whatever a model does with what is not its input
        return None
    return example


def _check_same(gates: Gates, context: int, small: nn.Module, example: Any) -> None:
    """Raise ValueError unless the sub-network has the same outputs as the whole model."""
    shown = gates.context
    gates.show(context)
    try:
        expected = outputs_on(gates.model, example)
    finally:
        gates.show(shown)
    got = outputs_on(small, example)
    for a, b in zip(expected, got, strict=True):
        scale = a.abs().max().item() if a.numel() else 0.0
        # Norms of Llama and others compute in float32, whatever the model's dtype.
        eps = (
            max(torch.finfo(t).eps for t in (a.dtype, torch.float32))
            if a.is_floating_point()
            else 0
        )
        tolerance = math.sqrt(eps)
        difference = (a - b).abs().max().item() if a.numel() else 0.0
        if not difference <= tolerance * max(scale, 1e-6):
            raise ValueError(
                f"The sub-network of context {context} does not compute what the model does: "
                f"outputs differ by {difference:.2g} of {scale:.2g}. Use the model with its gates, "
                "or compact(model, context) without fold."
            )
