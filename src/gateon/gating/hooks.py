"""The hooks by which gates act: each finds its gate through the module it is called with.

So copies and replicas of a model use their own gates.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..anatomy.recurrent import on_units
from .gate import Gate
from .ranks import compute_all
from .reads import Read
from .wrapped import check_wrapper

if TYPE_CHECKING:
    from .gates import Gates

__all__ = ["install", "remove_hooks", "watch_first_pass", "watch_passes"]

BEHIND, IN_FRONT, TAP, TAP_IN_FRONT = (
    "context_gate",
    "context_gate_in_front",
    "context_tap",
    "context_tap_in_front",
)


def install(place: nn.Module, gate: Gate | Read, *, in_front: bool) -> None:
    """Let a gate act on the input or the output of a module, as a child of it."""
    name = (
        (IN_FRONT if in_front else BEHIND)
        if isinstance(gate, Read) or gate.weight is not None
        else (TAP_IN_FRONT if in_front else TAP)
    )
    gate.train(place.training)
    place.add_module(name, gate)
    if in_front:
        place.register_forward_pre_hook(partial(_on_input, name), with_kwargs=True)
    else:
        place.register_forward_hook(partial(_on_output, name))


def watch_passes(model: nn.Module) -> None:
    """Check the first forward pass of a model with gates, and note the contexts of every one."""
    watch_first_pass(model)
    model.register_forward_pre_hook(_before_pass)


def watch_first_pass(model: nn.Module) -> None:
    """Check in the next forward pass that every gate acts and all that is observed is seen."""
    silent = any(isinstance(m, Gate | Read) and not m.fired for m in model.modules())
    if silent and _check_all_fired not in model._forward_hooks.values():
        model.register_forward_hook(_check_all_fired)


def remove_hooks(model: nn.Module) -> None:
    """Take every gate and its hooks out of a model."""
    for module in list(model.modules()):
        compute_all(module)
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            for key, hook in list(hooks.items()):
                if (hook.func if isinstance(hook, partial) else hook) in HOOKS:
                    del hooks[key]
                    module._forward_pre_hooks_with_kwargs.pop(key, None)
        for name in (BEHIND, IN_FRONT, TAP, TAP_IN_FRONT):
            module._modules.pop(name, None)


def _on_output(name: str, place: nn.Module, args: Any, output: Any) -> Any:
    gate = place._modules[name]
    assert isinstance(gate, Gate)
    return on_units(place, output, gate, gate.batch_dim)


def _on_input(
    name: str, place: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    gate = place._modules[name]
    assert gate is not None
    if args:
        return (gate(args[0]), *args[1:]), kwargs
    first = next(iter(kwargs))
    return (), kwargs | {first: gate(kwargs[first])}


def _check_all_fired(model: nn.Module, args: Any, output: Any) -> None:
    """Check after the first forward pass: a gate that did not act then never will."""
    if torch.compiler.is_compiling():
        return
    acting = {name: m for name, m in model.named_modules() if isinstance(m, Gate | Read)}
    silent = {name: m for name, m in acting.items() if not m.fired}
    gates = [n for n, m in silent.items() if isinstance(m, Read) or m.weight is not None]
    taps = [m for m in silent.values() if isinstance(m, Gate) and m.tap is not None]
    if gates:
        first, place = silent[gates[0]], gates[0].rpartition(".")[0]
        site = (first.gate[0] if isinstance(first, Read) else first).site
        raise RuntimeError(
            f"The gate of site {site.name!r} at {place!r} did not act in the first "
            "forward pass: that module's forward is never called; detach() and name another place "
            "for it in sites=."
        )
    if taps:
        raise RuntimeError(
            f"The relevance of site {taps[0].site.name!r} cannot be observed: the forward of "
            f"{taps[0].site.place!r} is never called, as where a loss in chunks reads the weight "
            'of an output layer by itself; use the plain loss (loss_type="nll" in TRL), '
            'obstruct(per="parameter"), or head=False.'
        )
    for key, hook in list(model._forward_hooks.items()):
        if hook is _check_all_fired:
            del model._forward_hooks[key]


def _before_pass(model: nn.Module, args: Any) -> None:
    """Refuse to train an orphaned copy; note which contexts the next step may learn."""
    if "context_gates" not in model.__dict__ or not torch.is_grad_enabled():
        return
    gates: Gates = model.__dict__["context_gates"]
    if gates.orphaned and model.training:
        raise RuntimeError(
            "This model is a copy of one whose updates are obstructed, but an optimizer's hooks "
            "are not copied with it: call gateon.obstruct for the copy, or eval() if it is not to "
            "be trained."
        )
    if not torch.compiler.is_compiling():
        check_wrapper(gates)
        shown = gates.context
        gates.passed.update([shown] if isinstance(shown, int) else shown.tolist())


HOOKS = (_on_output, _on_input, _check_all_fired, _before_pass)
