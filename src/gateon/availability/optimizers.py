"""What obstruction needs from an optimizer: supported types, closures, skipped steps, gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..anatomy.ranks import rank_sites
from ..anatomy.shards import check_shards, local, over_pieces
from ..gating.gates import Gates
from .settings import require

__all__ = [
    "check_gradients",
    "checked_optimizers",
    "evaluate_closure",
    "skips_step",
]

REFUSED = {
    torch.optim.LBFGS: "it moves several times in one step, along directions it remembers",
    torch.optim.SparseAdam: "it takes sparse gradients only, and gates have dense ones",
}


def checked_optimizers(optimizer: Optimizer | Sequence[Optimizer], gates: Gates) -> list[Optimizer]:
    """The optimizers as a list; ValueError if one of them cannot be obstructed."""
    if isinstance(optimizer, Optimizer):
        optimizers = [optimizer]
    else:
        optimizers = list(optimizer) if isinstance(optimizer, Sequence) else []
    require(
        bool(optimizers) and all(isinstance(one, Optimizer) for one in optimizers),
        f"optimizer must be a torch optimizer or a list of them, got {type(optimizer).__name__}: "
        "build one from model.parameters().",
    )
    require(
        len({id(one) for one in optimizers}) == len(optimizers),
        "An optimizer is listed twice: list each once.",
    )
    _check_model(gates)
    for one in optimizers:
        for kind, reason in REFUSED.items():
            require(
                not isinstance(one, kind),
                f"{kind.__name__} cannot be obstructed: {reason}. "
                "Use SGD, Adam or another optimizer.",
            )
    _check_parameters(optimizers, gates)
    return optimizers


def _check_model(gates: Gates) -> None:
    """Check that all gates can learn, no adapter is unknown, and how parameters are sharded."""
    if any(site.columns for site in gates.sites.values()):
        new = next((s.name for s in rank_sites(gates.model) if s.name not in gates.sites), None)
        require(
            new is None,
            f"{new!r} came after the gates, which do not know it: detach() them, add all adapters, "
            "and attach gates again.",
        )
    for name, gate in gates.gates.items():
        require(
            gate.off or gate.weight is None or gate.weight.requires_grad,
            f"The gate of site {name!r} cannot learn because its requires_grad is False: call "
            "get_peft_model, which freezes what it finds, before attach; without PEFT, set "
            "requires_grad before you build the optimizer.",
        )
    check_shards((n, p) for n, p in gates.model.named_parameters() if p.requires_grad)


def _check_parameters(optimizers: list[Optimizer], gates: Gates) -> None:
    """Check that the optimizers hold parameters of the model only, and all gates."""
    known, held = set(gates.model.parameters()), set()
    for one in optimizers:
        for n, group in enumerate(one.param_groups):
            for p in group["params"]:
                held.add(p)
                require(
                    p in known,
                    f"Parameter group {n} of {type(one).__name__} holds a tensor of shape "
                    f"{tuple(p.shape)} that is not a parameter of the model (is it a copy?): "
                    "build the optimizer from model.parameters(), after attach.",
                )
    for name, gate in gates.gates.items():
        if gate.weight is not None and gate.weight.requires_grad:
            require(
                gate.weight in held,
                f"The optimizer does not hold the gate of site {name!r}: build it after attach.",
            )


def evaluate_closure(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Run the closure of a step now, so that its gradients exist, and pass on its result.

    Args:
        args: The arguments of `Optimizer.step`, the optimizer first.
        kwargs: Its keyword arguments.

    Returns:
        The arguments with a closure that returns the loss computed here.
    """
    closure = kwargs.get("closure") if "closure" in kwargs else args[1] if len(args) > 1 else None
    if closure is None:
        return args, kwargs
    with torch.enable_grad():
        loss = closure()
    others = {k: v for k, v in kwargs.items() if k != "closure"}
    return args[:1], others | {"closure": lambda: loss}


def skips_step(optimizer: Optimizer) -> bool:
    """Whether a GradScaler found an overflow, so that a fused optimizer skips this step."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)


def check_gradients(parameters: Iterable[Tensor], step: int) -> None:
    """Raise FloatingPointError if a gradient is not finite, before anything moves.

    Args:
        parameters: Those whose gradients are checked.
        step: The number of the step, for the message.
    """
    grads = [p.grad for p in parameters if p.grad is not None and p.grad.numel()]
    if not grads:
        return
    pieces = (local(grad.to_dense() if grad.is_sparse else grad) for grad in grads)
    gradients = [piece for piece in pieces if piece.numel()]
    # A finite norm proves that everything is; one that is not may also have overflowed. Two, not
    # infinity: that norm is twenty times slower on a CPU.
    norms = torch._foreach_norm(gradients) if gradients else []
    found = [sum(torch.stack([norm.to(norms[0]) for norm in norms]).tolist()) if norms else 0.0]
    if math.isfinite(over_pieces(torch.tensor(found, device=grads[0].device), grads).item()):
        return
    bad = torch.tensor(float(not all(g.isfinite().all() for g in gradients)))
    if over_pieces(bad.to(grads[0].device), grads):
        raise FloatingPointError(
            f"A gradient is not finite in step {step}: a number in the batch or the network is NaN "
            "or too large. Nothing was changed: lower the learning rate, or skip this batch."
        )
