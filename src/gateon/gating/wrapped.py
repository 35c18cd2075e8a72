"""Contexts added to a model after DistributedDataParallel was built around it.

Its buckets have the sizes that parameters had when it was built, so that no gradient of a gate that
has grown since would fit.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from .gates import Gates

__all__ = ["check_wrapper"]


def check_wrapper(gates: Gates) -> None:
    """Refuse to train in a wrapper that was built when the model had fewer contexts."""
    wrapper: Any = DistributedDataParallel._active_ddp_module
    if wrapper is None or gates.fits_in == (weakref.ref(wrapper), gates.contexts):
        return
    then = wrapper.logger._get_ddp_logging_data().ints_map["total_parameter_size_bytes"]
    now = sum(p.numel() * p.element_size() for p in wrapper.module.parameters() if p.requires_grad)
    weights = [gate.weight for gate in gates.gates.values() if gate.weight is not None]
    a_context = sum(weight[0].numel() * weight.element_size() for weight in weights)
    if now > then and (now - then) % a_context == 0:
        raise ValueError(
            f"DistributedDataParallel was built when this model had {(now - then) // a_context} "
            f"contexts fewer than its {gates.contexts}: attach(contexts=...) all of them before, "
            "or build a new wrapper and optimizer after add_context()."
        )
    gates.fits_in = weakref.ref(wrapper), gates.contexts
