"""Principle 2, obstruction: the update of a parameter is scaled by its availability.

theta <- lerp(theta before the step, theta after it, A) (eqs. gradientspecific, n-mu). The update is
scaled rather than the gradient: scale-free steps such as Adam's would undo a scaled gradient, and
momentum or weight decay would still move a frozen weight. It is done by step hooks on the user's
own optimizer, so that whatever drives that optimizer sees the one it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from torch import Tensor
from torch.optim import Optimizer

from ..gating.gates import Gates
from .firing_rate import FiringRate
from .ledgers import Measure
from .observers import Relevance
from .obstruction import Obstruction
from .optimizers import check_gradients, checked_optimizers
from .rule import Rate
from .settings import Rules, View, require

__all__ = ["Obstruction", "Rules", "View", "check_gradients", "obstruct", "obstruction_of"]


def obstruct(
    optimizer: Optimizer | Sequence[Optimizer],
    gates: Gates,
    *,
    per: View = "unit",
    rate: Rate | Mapping[str, Rate] = 0.01,
    epsilon: float = 0.0,
    floor: float = 0.0,
    rule: Callable[[Tensor, Tensor], Tensor] | None = None,
    relevance: Relevance | FiringRate | Measure = "gradient",
    apply: Literal["step", "switch"] = "switch",
    scale: Literal["update", "gradient"] = "update",
    head: bool = False,
    frozen: str | Sequence[str] = (),
    bias_apart: bool = False,
    first_rate: float | None = None,
    gather_after: float = 0.0,
) -> Obstruction:
    """Scale every update of the optimizer by availability; your training loop stays as it is.

    Around each step, hooks on the optimizer

    1. measure relevance and move the availabilities A by it (eq. availabilty),
    2. remember the parameters, let the optimizer step, and
    3. scale what it did: theta <- lerp(before, after, A).

    Args:
        optimizer: Any torch optimizer built after `attach`, or several that share one backward
            pass.
        gates: What `attach` returned.
        per: "unit" (n-GateON) or "parameter" (p-GateON).
        rate: eta_A: a number, a pair of rates for falling and rising, or a mapping from patterns of
            site names to these, of which the first that matches counts. Or "room": every task
            freezes the same share of what is left in a layer, so that all tasks expected find room;
            tell `handle.expect` how many there are and how long they take.
        epsilon: Relevance below it unfreezes.
        floor: The smallest availability.
        rule: Your own function in place of the equation: it takes A and relevances with mean one,
            and returns the new A. See `gateon.availability.Rule`.
        relevance: How the relevance of units is measured: "gradient", "fisher", "activity",
            "firing-rate" or a `gateon.availability.FiringRate`, "next-layer" or "next-layer-gated";
            that of parameters is "fisher", or by the gradient for all others. Or your own function:
            per unit, of dL/dx and x of a site, both (samples, units, positions), returning the
            relevance of each unit; per parameter, of dL/dtheta and theta, returning the relevance
            of each.
        apply: "step" applies the running availability at once, as in the equations; "switch"
            applies that of the last switch of context.
        scale: "update", or "gradient" as in the released code, where Adam undoes most of it.
        head: Whether to obstruct the output layers too.
        frozen: Patterns of parameter names that never move, as at availability 0; gates are not
            among them. Biases right in front of a `ContextNorm`, which subtracts them again, never
            move either.
        bias_apart: Whether to normalise biases separately from weights, as the released code does.
        first_rate: eta_A in context 0, if it differs: a short first task freezes too little
            otherwise.

        gather_after: The share of a task after which its relevances count; 0 for all of it.

    Returns:
        A handle with the availabilities; `remove()` makes the optimizer plain again.

    >>> import gateon, torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> gates = gateon.attach(model, contexts=2, density=0.5)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> handle = obstruct(optimizer, gates, per="unit", rate=0.1, apply="step")
    >>> model(torch.ones(3, 4)).square().sum().backward(); optimizer.step(); optimizer.zero_grad()
    >>> handle.availability["0"].min() < 1
    tensor(True)
    """
    require(
        isinstance(gates, Gates),
        "gates must be what attach() returned, or gateon.gates_of(model), "
        f"got {type(gates).__name__}.",
    )
    require(
        not gates.listeners,
        "These gates are obstructed already: call handle.follow(optimizer) to change the "
        "optimizer, or handle.remove() first.",
    )
    optimizers = checked_optimizers(optimizer, gates)
    rules = Rules(
        per=per,
        rate=rate,
        epsilon=epsilon,
        floor=floor,
        relevance=relevance,
        apply=apply,
        scale=scale,
        head=head,
        frozen=(frozen,) if isinstance(frozen, str) else tuple(frozen),
        bias_apart=bias_apart,
        first_rate=first_rate,
        gather_after=gather_after,
        rule=rule,
    )
    handle = Obstruction(gates, rules)
    handle.follow(optimizers)
    return handle


def obstruction_of(gates: Gates) -> Obstruction | None:
    """The handle that scales the updates of a model with these gates; None if there is none."""
    return next((one for one in gates.listeners if isinstance(one, Obstruction)), None)
