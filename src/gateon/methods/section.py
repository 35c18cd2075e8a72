"""The section [method] of a specification: which method, and its own fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .base import Method
from .gateon import preset as gateon_preset
from .registry import Fact, entry, make, method_options, needs

__all__ = ["ChosenMethod", "Preset", "is_gateon", "method_defaults"]

Preset = Literal["room", "best", "paper", "released"]

# What the paper says of its convolutional networks (Methods); by patterns of site names.
RATES: dict[str, Mapping[str, float]] = {
    "cnn": {"conv*": 0.004, "*": 0.01},
    "wide-resnet": {"first": 0.04, "*": 0.004},
}


@dataclass(frozen=True)
class ChosenMethod:
    """A method and its options.

    Args:
        name: of the method; gateon list methods shows them.
        preset: settings of method and training: room, best, paper or released.
        options: fields of the method.
    """

    name: str = "n-gateon"
    preset: Preset = "best"
    options: Mapping[str, Any] = field(default_factory=dict)

    def needs(self, what: Literal["language", "replay", "label", "heads"]) -> bool:
        """Whether the method needs something; see `gateon.methods.registry.Entry`."""
        return what in needs(self.name)

    def make(self, facts: Mapping[Fact, Any], seed: int) -> Method:
        """The method; `facts` are what the run knows, see `gateon.methods.registry.Entry`."""
        return make(self.name, self.options, facts, seed)


def is_gateon(name: str) -> bool:
    """Whether a method is GateON or a part of it.

    >>> is_gateon("gating-only"), is_gateon("xdg")
    (True, False)
    """
    return entry(name).home == "gateon:GateON"


def method_defaults(name: str, preset: str, network: str) -> dict[str, Any]:
    """The values a method starts from: of GateON a preset's, of others those of its publication.

    Args:
        name: of the method.
        preset: room, best, paper or released.
        network: the kind of network that learns.

    >>> method_defaults("n-gateon", "paper", "mlp")["apply"]
    'step'
    """
    known = method_options(name)
    if not is_gateon(name):
        return {option: known[option].default for option in known}
    per = entry(name).fixed["per"]
    base = gateon_preset("language" if network == "language" else preset, per)
    values = {option: getattr(base, option) for option in known}
    if "rate" in known and network in RATES and base.rate != "room":
        values["rate"] = RATES[network]
    return values
