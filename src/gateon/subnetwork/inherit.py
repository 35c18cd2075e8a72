"""Inheritance: a new context starts as a copy of an earlier one, where that is available."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..anatomy.rows import all_rows, fetch_rows
from ..availability.obstruct import obstruction_of
from ..gating.gates import Gates
from .cut import cut_for

__all__ = ["Heirs", "inherit"]


@torch.no_grad()
def inherit(gates: Gates, parent: int, context: int) -> None:
    """Start a context from another: the same gains, and theta <- lerp(theta, theta_parent, A).

    Units that are open in both are themselves; the others are paired, the n-th that only the parent
    has with the n-th that only the new context has. The copy is an update like any other, and is
    scaled by availability like any other: what earlier contexts rely on stays. A parameter without
    availability, as of an output layer that is not obstructed, is not copied.

    Args:
        gates: of a model whose updates are obstructed.
        parent: the context to start from.
        context: the new one, right after the switch to it and before it is trained.

    >>> import gateon
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> gates = gateon.attach(model, contexts=2, density=0.5)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> handle = gateon.obstruct(optimizer, gates, head=True)
    >>> gates.switch(1); inherit(gates, parent=0, context=1)
    >>> x = torch.ones(1, 3)
    >>> in_heir = model(x); gates.switch(0); torch.allclose(in_heir, model(x))
    True
    """
    handle = obstruction_of(gates)
    if handle is None:
        raise ValueError(
            "Only what is available may be overwritten, and these gates have no availabilities: "
            "obstruct() them first."
        )
    theirs, ours = paired(gates, parent, context)
    source, target = cut_for(gates, parent, theirs), cut_for(gates, context, ours)
    gains, whole = {gate.weight: site for site, gate in gates.gates.items()}, all_rows(gates.model)
    for name, parameter in gates.model.named_parameters():
        A = handle.scale_of(parameter)
        if gains.get(parameter) in ours:  # a context's gains are its own
            target.put(name, whole[name], source.take(name, whole[name]))
        elif A is not None and name in target.slices:
            here, scale = target.take(name, parameter), target.take(name, A.expand_as(parameter))
            target.put(name, parameter, here.lerp(source.take(name, parameter), scale))
    fetch_rows(gates.model)


def paired(gates: Gates, parent: int, context: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Open units of both contexts, by site that can be narrowed: as many of each, in pairs."""
    theirs, ours, of_parent, of_context = {}, {}, gates.gain(parent), gates.gain(context)
    for name in (name for name in of_parent if gates.sites[name].narrows):
        old, new = of_parent[name], of_context[name]
        both = ((old > 0) & (new > 0)).nonzero().flatten()
        only_old, only_new = (
            ((a > 0) & (b == 0)).nonzero().flatten() for a, b in ((old, new), (new, old))
        )
        pairs = min(len(only_old), len(only_new))
        theirs[name], ours[name] = (
            torch.cat([both, only_old[:pairs]]),
            torch.cat([both, only_new[:pairs]]),
        )
    return theirs, ours


class Heirs:
    """Lets a new context inherit from the one learned before it, when it is first switched to."""

    def __init__(self, gates: Gates) -> None:
        self.gates = gates
        self.parents: dict[int, int] = {}
        gates.listeners.append(self)

    def context_added(self) -> None:
        """Remember the context being learned as the parent."""
        if self.gates.learning is not None:
            self.parents[self.gates.contexts - 1] = self.gates.learning

    def switched(self) -> None:
        """Start a new context from its parent."""
        parent = (
            None if self.gates.learning is None else self.parents.pop(self.gates.learning, None)
        )
        if parent is not None and self.gates.learning is not None:
            inherit(self.gates, parent, self.gates.learning)

    def state_dict(self) -> dict[str, Tensor]:
        """Who will inherit from whom, (contexts, 2)."""
        return {
            "parents": torch.tensor(sorted(self.parents.items()), dtype=torch.long).reshape(-1, 2)
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        self.parents = dict(state["parents"].reshape(-1, 2).tolist())

    def remove(self) -> None:
        """Stop listening."""
        if self in self.gates.listeners:
            self.gates.listeners.remove(self)
