"""What happens inside a network while it learns: for figures of what a run does not keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..gating.gates import gates_of
from ..learners.learner import Learner
from ..methods import GateON
from ..runs.run import Progress
from ..runs.specification import Specification

__all__ = ["selective_units"]

SELECTIVE = 0.1  # share of the units that count as selective for a task


def selective_units(
    specification: Specification, progress: Progress | None = None
) -> dict[str, Any]:
    """Activity, gain and availability at every step: means over units, and single ones.

    A unit's selectivity for a task is its mean activity in it minus its largest mean activity in
    another task. Means are over all hidden units and, for each task but the first, over the most
    selective tenth; of single units there is the most selective one for each task.
    """
    stream = specification.make_stream()
    learner = specification.make_learner(stream)
    assert isinstance(learner, Learner)
    learner.compact = False  # every unit is looked at in every task
    if progress is not None:
        progress.begin(
            f"{stream.name} {learner.method.name}",
            [(specification.training.steps or 0)] * len(stream),
            0,
        )
    activity: list[Tensor] = []
    courses: dict[str, list[Tensor]] = {"activity": [], "gain": [], "availability": []}
    seen = _watch(learner.model, activity)
    draw = np.random.default_rng(specification.seed)
    for k, task in enumerate(stream):
        for step in range(specification.training.steps or 0):
            rows = torch.from_numpy(
                draw.choice(len(task.train), specification.training.batch, replace=False)
            )
            activity.clear()
            loss = learner.observe(task.train.x[rows], task.train.y[rows], context=k).loss
            if progress is not None:
                progress.step(k, step + 1, loss)
            gates, method = gates_of(learner.model), learner.method
            assert gates is not None and isinstance(method, GateON) and method.handle is not None
            courses["activity"].append(torch.cat(activity))
            courses["gain"].append(torch.cat(list(gates.gain(k).values())).flatten())
            courses["availability"].append(
                torch.cat([method.handle.availability[site] for site in gates.gain(k)]).clone()
            )
    for hook in seen:
        hook.remove()
    if progress is not None:
        progress.end()
    tables = {name: torch.stack(rows).detach().cpu().numpy() for name, rows in courses.items()}
    selective = _most_selective(tables["activity"], len(stream))
    single = {group: units[:1] for group, units in selective.items()}
    del selective["selective for task 1"]
    return {
        "step": list(range(1, len(courses["gain"]) + 1)),
        "tasks": len(stream),
        "courses": _means(tables, {"all": slice(None)} | selective),
        "units": _means(tables, single),
    }


def _means(tables: dict[str, Any], groups: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """By quantity and group, the mean over its units at every step."""
    return {
        quantity: {
            group: np.round(table[:, units].mean(axis=1), 5).tolist()
            for group, units in groups.items()
        }
        for quantity, table in tables.items()
    }


def _watch(model: nn.Module, into: list[Tensor]) -> list[Any]:
    """Put the mean activity behind every gate into the list, at every forward pass."""
    gates = gates_of(model)
    assert gates is not None

    def look(module: nn.Module, inputs: Any, output: Tensor) -> None:
        into.append(output.detach().mean(dim=0))

    return [gate.register_forward_hook(look) for gate in gates.gates.values()]


def _most_selective(activity: Any, tasks: int) -> dict[str, Any]:
    # (tasks, units)
    each = np.stack([part.mean(axis=0) for part in np.array_split(activity, tasks)])
    count = max(1, round(SELECTIVE * each.shape[1]))
    groups = {}
    for k in range(tasks):
        selectivity = each[k] - np.delete(each, k, axis=0).max(axis=0)
        groups[f"selective for task {k + 1}"] = np.argsort(-selectivity)[:count]
    return groups
