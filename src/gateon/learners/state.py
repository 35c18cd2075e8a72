"""Which states fit a learner: a template of each, with as many contexts as the state has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ..detection.infer import Inference
from ..gating.gates import gates_of
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
from .work import Setup, Work

__all__ = ["learner_like"]


def learner_like(
    state: Mapping[str, Any],
    setup: Setup,
    work: Work,
    inference: Inference | None,
    inputs: Inputs | None,
    *,
    narrow: bool,
) -> dict[str, Any]:
    """A template of the states that fit a `Learner`; see `gateon.storage.states`.

    Args:
        state: the state to check, which says how many of everything there are.
        setup: what the learner is made of.
        work: what it is training.
        inference: its inference of contexts, if any.
        inputs: what batches look like, if that is known.
        narrow: whether it may train a sub-network.
    """
    whole = setup.model
    model, active = grown(whole, state.get("model"), inputs), state.get("active")
    parameters = model.parameters
    if active is not None:
        check(active, _active_like(active, whole, narrow=narrow), "active")
        check(state.get("context"), model.context, "context")
        parameters = part_shapes(whole, model.model, state["context"], active)
    held = state.get("optimizer")
    check(held, {"state": ANYTHING, "param_groups": ANYTHING}, "optimizer")
    inferred = None if inference is None else inference.state_like(state.get("contexts"), model)
    groups = work.optimizer.param_groups
    return {
        "model": model.state,
        "optimizer": optimizer_like(setup.optimizer, list(parameters.values()), groups, held),
        "schedule": schedule_like(work.schedule),
        "method": setup.method.state_like(state.get("method"), model),
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
