"""What a learner is made of, as JSON-able settings: for runs started from Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

__all__ = ["settings_of"]

# How fast an optimizer is, not what it does.
SPEED = ("fused", "foreach", "capturable", "differentiable")


def settings_of(thing: Any) -> Any:
    """The settings of a network, method, optimizer, loss or schedule, equal in every process.

    Fields of dataclasses, public numbers and words of other objects, names of functions. What an
    object has learned is not among them.

    >>> from gateon.methods.si import SI
    >>> settings_of(SI(strength=2.0))
    {'kind': 'SI', 'strength': 2.0, 'damping': 0.1, 'skip': []}
    >>> settings_of(nn.Sequential(nn.Linear(4, 2)))["modules"]["0"]["out_features"]
    2
    """
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if isinstance(thing, Mapping):
        return {str(key): settings_of(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [settings_of(value) for value in thing]
    if isinstance(thing, Tensor):
        return {"kind": "Tensor", "shape": list(thing.shape)}
    if isinstance(thing, nn.Module):
        modules = {name: _own(module) for name, module in thing.named_modules() if name}
        return _own(thing) | {"modules": modules}
    if isinstance(thing, Optimizer):
        kept = {name: v for name, v in thing.defaults.items() if name not in SPEED}
        return {"kind": type(thing).__name__} | settings_of(kept)
    if isinstance(thing, partial):
        given = {name: v for name, v in thing.keywords.items() if name not in SPEED}
        return {"kind": settings_of(thing.func), "arguments": settings_of([*thing.args, given])}
    if is_dataclass(thing) and not isinstance(thing, type):
        given = {field.name: getattr(thing, field.name) for field in fields(thing) if field.init}
        return {"kind": type(thing).__name__} | settings_of(given)
    name = getattr(thing, "__qualname__", None)
    return _own(thing) if name is None else f"{thing.__module__}.{name}"


def _own(thing: Any) -> dict[str, Any]:
    """The kind of an object and its public numbers and words."""
    plain = {
        name: settings_of(value)
        for name, value in vars(thing).items()
        if not name.startswith("_") and name != "training" and _is_plain(value)
    }
    return {"kind": type(thing).__name__} | plain


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)
