"""Whether the closed units of a site can be left out without changing anything else."""

from __future__ import annotations

from torch import nn

from .flow import acts_on_each_unit, keeps_zero, passes_units_on, reads_units, role
from .kinds import is_layer, narrows, units_of
from .wiring import Wiring

__all__ = ["can_narrow", "makes_units_once"]


def can_narrow(
    wiring: Wiring, chain: list[int], units: int, dim: int, *, outputs: int
) -> tuple[bool, bool]:
    """Whether closed units can be left out: for a gate at the end of the chain, and at its start.

    Args:
        wiring: The calls of one forward pass.
        chain: The layer, and the norms, activations and sums between it and the gate.
        units: The number of units at the end of the chain.
        dim: The dimension of its output that counts units.
        outputs: The number of outputs of the layer: twice the units if one half multiplies the
            other.
    """
    summed = [_summed_layers(wiring, i) for i in chain]
    makers = {chain[0], *(layer for layers in summed for layer in layers)}
    fits = all(makes_units_once(wiring, i, outputs) for i in makers) and all(
        _knows_all_summands(wiring, i) for i in chain
    )
    private = fits and _is_read_by_layers_only(wiring, chain[-1], units, dim)
    rest = [(wiring.calls[i], layers) for i, layers in zip(chain[1:], summed[1:], strict=True)]
    apart = all(layers or acts_on_each_unit(call) for call, layers in rest)
    zeros_stay = all(keeps_zero(call) for call, _ in rest)
    return private and apart, private and zeros_stay


def makes_units_once(wiring: Wiring, index: int, units: int) -> bool:
    """Whether the call makes that many units, any of which can be left out, and runs once."""
    call = wiring.calls[index]
    if call.module is None or not narrows(call.module):
        return False
    return wiring.times(call.name) == 1 and units_of(call.module) == units


def _knows_all_summands(wiring: Wiring, index: int) -> bool:
    """Whether every summand of a sum is the result of a call; true for anything but a sum.

    A parameter added to every unit would not be narrowed along with the layers.
    """
    if role(wiring, index) != "sum":
        return True
    inputs = wiring.calls[index].inputs
    return len(inputs) > 1 and all(_knows_all_summands(wiring, i) for i in inputs)


def _summed_layers(wiring: Wiring, index: int) -> list[int]:
    """The layers whose results a sum adds up, all owned by the site; empty for any other call."""
    if role(wiring, index) != "sum":
        return []
    inputs = wiring.calls[index].inputs
    return [layer for i in inputs for layer in (_summed_layers(wiring, i) or [i])]


def _is_read_by_layers_only(wiring: Wiring, index: int, units: int, dim: int) -> bool:
    """Whether the result reaches only layers that can be narrowed, through dropout and pooling."""
    queue = [index]
    while queue:
        current = queue.pop()
        users = wiring.users(current)
        if current in wiring.outputs or not users:
            return False
        for user in users:
            call = wiring.calls[user]
            if is_layer(call.module):
                once = narrows(call.module) and wiring.times(call.name) <= 1
                if not once or not reads_units(call.module, units, dim):
                    return False
            elif isinstance(call.module, nn.AlphaDropout) or call.name == "flatten_to_size":
                return False  # the first turns zeros into numbers, the second fixes the width
            elif passes_units_on(wiring, user, dim):
                queue.append(user)
            else:
                return False
    return True
