"""Products of units, as in SwiGLU: of two layers, or of two halves of one layer.

    silu(gate_proj(x)) * up_proj(x)          two layers, as in Llama
    gate, up = gate_up_proj(x).chunk(2, -1)  one layer, as in Phi-3
    silu(gate) * up

Either way unit i is a product, which one gate multiplies. In the second case outputs i and i + n of
the layer make it.
"""

from __future__ import annotations

from .flow import has_tensors, role
from .kinds import is_layer, rescales, unit_dim, units_of
from .wiring import Wiring

__all__ = ["join_halves", "multiplies_layers"]


def multiplies_layers(wiring: Wiring, index: int, units: int, dim: int) -> bool:
    """Whether each factor of a product comes from a layer with these units that feeds nothing else.

    Between layer and product there may be norms and activations.
    """

    def belongs(i: int, user: int) -> bool:
        call = wiring.calls[i]
        if wiring.users(i) != [user] or i in wiring.outputs:
            return False
        if call.module is not None and is_layer(call.module):
            once = wiring.times(call.name) == 1
            return once and units_of(call.module) == units and unit_dim(call.module) == dim
        kind = role(wiring, i)
        if kind == "product":
            return all(belongs(source, i) for source in call.inputs)
        if kind == "norm" and call.module is not None and not rescales(call.module, units, dim):
            return False
        passes = kind in ("norm", "activation", "transparent") and len(call.inputs) == 1
        return passes and belongs(call.inputs[0], i)

    return all(belongs(i, index) for i in wiring.calls[index].inputs)


def join_halves(wiring: Wiring) -> Wiring:
    """Make one call named "glu" of a cut into halves and what multiplies them, in place.

    >>> from torch import nn
    >>> from .wiring import trace
    >>> class Fused(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.both = nn.Linear(3, 8)
    ...     def forward(self, x):
    ...         gate, up = self.both(x).chunk(2, dim=-1)
    ...         return nn.functional.silu(gate) * up
    >>> wiring = join_halves(trace(Fused()))
    >>> [wiring.calls[i].name for i in wiring.users(1)]
    ['glu']
    """
    for index, call in enumerate(wiring.calls):
        if call.module is not None or call.name != "halves":
            continue
        between, product = _until_product(wiring, index)
        if product is not None:
            wiring.calls[product].name = "glu"
            wiring.calls[product].inputs = call.inputs
            for i in between:
                wiring.calls[i].inputs = ()
    return wiring


def _until_product(wiring: Wiring, index: int) -> tuple[set[int], int | None]:
    """The calls from a cut into halves up to the product of the two, and that product.

    None if anything else uses a half, or does more with it than act on each unit alone.
    """
    between, ends = {index}, set()
    for user in wiring.users(index):
        while (
            role(wiring, user) in ("activation", "transparent")
            and not has_tensors(wiring.calls[user].module)
            and len(behind := wiring.users(user)) == 1
        ):
            between.add(user)
            user = behind[0]
        ends.add(user)
    product = ends.pop() if len(ends) == 1 else None
    if product is None or role(wiring, product) != "product":
        return between, None
    whole = between.isdisjoint(wiring.outputs) and between.issuperset(wiring.calls[product].inputs)
    return between, product if whole else None
