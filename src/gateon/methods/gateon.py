"""GateON: context gates and availability-scaled updates, as one method; its ablations and presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import nn

from ..gates import Gates, attach
from ..observers import Relevance
from ..obstruct import Obstruction, Rules, View
from .base import Adopt, Method

__all__ = ["GateON", "gating_only", "obstruction_only", "preset"]


@dataclass
class GateON(Method):
    """n-GateON (`per="unit"`) or p-GateON (`per="parameter"`).

    Fields are the arguments of `gateon.attach` and `gateon.obstruct` of the same name; the defaults are the preset "best" per unit.

    Args:
        gating: False leaves every gate open: obstruction only.
        obstruct_head: whether output layers have availabilities too.

    >>> GateON(per="parameter").name
    'p-gateon'
    """

    per: View = "unit"
    rate: float | Mapping[str, float] = 0.01
    epsilon: float = 0.5
    floor: float = 0.0
    relevance: Relevance = "gradient"
    apply: Literal["step", "switch"] = "switch"
    scale: Literal["update", "gradient"] = "update"
    frozen: str | tuple[str, ...] = ()
    obstruct_head: bool = False
    bias_apart: bool = False
    gating: bool = True
    density: float | Mapping[str, float] = 0.25
    start: Literal["random", "open"] | float = "random"
    width: float = 0.3
    power: int = 1
    before_norm: bool = False
    sites: str | tuple[str, ...] | Mapping[str, str | tuple[str, ...]] | None = None
    example: Any = field(default=None, repr=False)
    seed: int = 0

    gates: Gates | None = field(default=None, init=False, repr=False, compare=False)
    handle: Obstruction | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:  # type: ignore[override]
        """As on the command line."""
        if not self.gating:
            return "obstruction-only"
        return "gating-only" if self.rate == 0 else "n-gateon" if self.per == "unit" else "p-gateon"

    def prepare(self, model: nn.Module) -> Adopt:
        """Attach the gates; obstruct every optimizer that is built from now on."""
        frozen = (self.frozen,) if isinstance(self.frozen, str) else self.frozen
        rules = Rules(
            self.per,
            self.rate,
            self.epsilon,
            self.floor,
            self.relevance,
            self.apply,
            self.scale,
            self.obstruct_head,
            frozen,
            self.bias_apart,
        )
        self.gates = attach(
            model,
            density=self.density,
            start=self.start,
            sites=self.sites,
            example=self.example,
            power=self.power,
            width=self.width,
            before_norm=self.before_norm,
            seed=self.seed,
        )
        if not self.gating:
            self.gates.off()
        try:
            self.handle = Obstruction(self.gates, rules)
        except ValueError:
            self.gates.detach()
            raise
        return self.handle.follow

    def state_dict(self) -> dict[str, Any]:
        """The availabilities; gates are in the model."""
        return {} if self.handle is None else dict(self.handle.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over availabilities."""
        if self.handle is not None:
            self.handle.load_state_dict(state)


def gating_only(base: GateON | None = None) -> GateON:
    """Principle 1 alone: gates, but every parameter stays fully available.

    >>> gating_only().name
    'gating-only'
    """
    return replace(base or GateON(), rate=0.0)


def obstruction_only(base: GateON | None = None) -> GateON:
    """Principle 2 alone: availabilities, but every gate open.

    >>> obstruction_only().name
    'obstruction-only'
    """
    return replace(base or GateON(), gating=False)


def preset(name: str, per: View = "unit") -> GateON:
    """The settings of one of three presets.

    Args:
        name: "paper": the equations as printed, epsilon 0; the output layer is obstructed but not gated. "released": the choices of
            the released code, except its choice of models on test data. "best": what measured best on validation data; the default.
        per: "unit" or "parameter".

    >>> preset("paper").apply, preset("released").scale
    ('step', 'gradient')
    """
    presets = {
        "paper": GateON(per=per, epsilon=0.0, apply="step", obstruct_head=True, density=0.5, width=1.0, power=1),
        "released": GateON(
            per=per, epsilon=0.0, scale="gradient", bias_apart=True, density=0.5, width=0.095, power=2, before_norm=True
        ),
        "best": GateON(per=per, epsilon=0.5 if per == "unit" else 0.0),
    }
    if name not in presets:
        raise ValueError(f"There is no preset {name!r}: choose one of {', '.join(presets)}.")
    return presets[name]
