"""Which states fit a learner: a template of each, with as many contexts as the state has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..detection.infer import Inference
from ..gating.gates import gates_of
from ..methods.base import Method
from ..storage.states import (
    ANYTHING,
    COUNT,
    GENERATOR,
    Inputs,
    check,
    grown,
    indices_like,
    optimizer_like,
    schedule_like,
)
from ..subnetwork.cut import part_shapes

__all__ = ["learner_like"]


def learner_like(
    state: Mapping[str, Any],
    whole: nn.Module,
    method: Method,
    inference: Inference | None,
    new_optimizer: Callable[[Any], Optimizer],
    optimizer: Optimizer,
    schedule: LRScheduler | None,
    *,
    narrow: bool,
    inputs: Inputs | None,
) -> dict[str, Any]:
    """A template of the states that fit a `Learner`; see `gateon.storage.states`.

    Args:
        state: the state to check, which says how many of everything there are.
        whole: the learner's model.
        method: its method.
        inference: its inference of contexts, if any.
        new_optimizer: builds an optimizer.
        optimizer: the current one.
        schedule: the current one, if any.
        narrow: whether it may train a sub-network.
        inputs: what batches look like, if that is known.
    """
    model, active = grown(whole, state.get("model"), inputs), state.get("active")
    parameters = model.parameters
    if active is not None:
        check(active, _active_like(active, whole, narrow=narrow), "active")
        check(state.get("context"), model.context, "context")
        parameters = part_shapes(whole, model.model, state["context"], active)
    held = state.get("optimizer")
    check(held, {"state": ANYTHING, "param_groups": ANYTHING}, "optimizer")
    inferred = None if inference is None else inference.state_like(state.get("contexts"), model)
    return {
        "model": model.state,
        "optimizer": optimizer_like(
            new_optimizer, list(parameters.values()), optimizer.param_groups, held
        ),
        "schedule": schedule_like(schedule),
        "method": method.state_like(state.get("method"), model),
        "contexts": inferred,
        "active": ANYTHING,
        "step": COUNT,
        "context": None if state.get("context") is None else model.context,
        "generator": GENERATOR,
    }


def _active_like(active: Any, whole: nn.Module, *, narrow: bool) -> dict[str, Any]:
    """Units of the sites that can be narrowed."""
    gates = gates_of(whole)
    if gates is None or not narrow or not isinstance(active, Mapping) or not active:
        raise ValueError("active must be nothing: this learner trains the whole network")
    return {
        name: indices_like(site.units)
        for name, site in gates.sites.items()
        if site.narrows and name in active
    }
