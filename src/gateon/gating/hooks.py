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

if TYPE_CHECKING:
    from .gates import Gates

__all__ = ["install", "remove_hooks", "watch_passes"]

BEHIND, IN_FRONT, TAP, TAP_IN_FRONT = (
    "context_gate",
    "context_gate_in_front",
    "context_tap",
    "context_tap_in_front",
)


def install(place: nn.Module, gate: Gate, *, in_front: bool) -> None:
    """Let a gate act on the input or the output of a module, as a child of it."""
    name = (
        (IN_FRONT if in_front else BEHIND)
        if gate.weight is not None
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
    model.register_forward_hook(_check_all_fired)
    model.register_forward_pre_hook(_before_pass)


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
    # What neither gates nor observes has nothing to do, as at an lm_head whose weight a loss reads.
    gates = [m for m in model.modules() if isinstance(m, Gate) and not m.fired]
    silent = [gate.site for gate in gates if gate.weight is not None or gate.tap is not None]
    if silent:
        raise RuntimeError(
            f"The gate of site {silent[0].name!r} at {silent[0].place!r} did not act in the first "
            "forward pass: that module's forward is never called; detach() and name another place "
            "for it in sites=."
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
        shown = gates.context
        gates.passed.update([shown] if isinstance(shown, int) else shown.tolist())


HOOKS = (_on_output, _on_input, _check_all_fired, _before_pass)
