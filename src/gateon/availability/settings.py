"""The settings of `obstruct`, validated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ..anatomy.sites import matching
from ..gating.gates import Gates
from .firing_rate import FiringRate, firing_rate_of
from .ledgers import Measure
from .observers import MEASURES, Relevance
from .rule import Rate

__all__ = ["Rules", "View", "looks_after_room", "rates_by_site", "require"]

View = Literal["unit", "parameter"]


@dataclass(frozen=True)
class Rules:
    """The arguments of `obstruct`; see there."""

    per: View
    rate: Rate | Mapping[str, Rate]
    epsilon: float
    floor: float
    relevance: Relevance | FiringRate | Measure
    apply: Literal["step", "switch"]
    scale: Literal["update", "gradient"]
    head: bool
    frozen: tuple[str, ...]
    bias_apart: bool
    first_rate: float | None = None
    gather_after: float = 0.0
    rule: Callable[[Tensor, Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        """Validate the settings."""
        first, infinity = self.first_rate, float("inf")
        require(
            self.per in ("unit", "parameter"),
            f'per must be "unit" or "parameter", got {self.per!r}.',
        )
        require(
            0 <= self.epsilon < infinity,
            f"epsilon must be at least 0 and finite, got {self.epsilon}.",
        )
        require(0 <= self.floor <= 1, f"floor must be between 0 and 1, got {self.floor}.")
        require(
            self.apply in ("step", "switch"),
            f'apply must be "step" or "switch", got {self.apply!r}.',
        )
        require(
            self.scale in ("update", "gradient"),
            f'scale must be "update" or "gradient", got {self.scale!r}.',
        )
        require(
            first is None or 0 <= first < infinity,
            f"first_rate must be at least 0 and finite, got {first}.",
        )
        require(
            0 <= self.gather_after < 1,
            f"gather_after must be at least 0 and below 1, got {self.gather_after}.",
        )
        if looks_after_room(self.rate):
            require(
                self.rule is None and self.epsilon == 0,
                'rate="room" spends the room there is, so nothing unfreezes and no other rule '
                "applies: set epsilon to 0 and leave rule out, or give rate a number.",
            )
            require(
                self.apply == "switch" and first is None,
                'rate="room" needs apply="switch" and no first_rate, or give rate a number.',
            )
        require(
            callable(self.relevance)
            or isinstance(self.relevance, FiringRate)
            or self.relevance in MEASURES,
            f"relevance must be a function or one of {', '.join(MEASURES)}, "
            f"got {self.relevance!r}.",
        )
        require(
            self.per == "unit" or firing_rate_of(self.relevance) is None,
            'Firing rates are of units, and parameters have none: use per="unit", or another '
            "relevance.",
        )


def looks_after_room(rate: Rate | Mapping[str, Rate]) -> bool:
    """Whether the rate of any site follows from the room left."""
    rates = rate.values() if isinstance(rate, Mapping) else [rate]
    return any(one == "room" for one in rates)


def rates_by_site(
    rate: Rate | Mapping[str, Rate], gates: Gates
) -> dict[str, tuple[float, float] | None]:
    """The rates of falling and of rising for every site; None where they follow from the room left.

    Args:
        rate: One rate for all sites, or a mapping from patterns of site names to rates, of which
            the first that matches counts.
        gates: The gates of the model.
    """
    if isinstance(rate, Mapping):
        by_pattern = reversed(list(rate.items()))
        rates = {
            name: _pair(r)
            for pattern, r in by_pattern
            for name in matching(pattern, gates.sites, "site")
        }
        missing = next((name for name in gates.sites if name not in rates), None)
        require(
            missing is None,
            f'rate does not cover site {missing!r}: add a pattern for it, such as "*".',
        )
    else:
        rates = dict.fromkeys(gates.sites, _pair(rate))
    for name, pair in rates.items():
        for value in pair or ():
            require(
                0 <= value < float("inf"),
                f"The rate of site {name!r} must be at least 0 and finite, got {value}.",
            )
    return rates


def require(holds: bool, message: str) -> None:
    """Raise ValueError with the message unless the condition holds."""
    if not holds:
        raise ValueError(message)


def _pair(rate: Rate) -> tuple[float, float] | None:
    if rate == "room":
        return None
    require(not isinstance(rate, str), f'rate must be a number or "room", got {rate!r}.')
    if not isinstance(rate, tuple | list):
        return float(rate), float(rate)
    require(len(rate) == 2, f"rate must be a number, or a pair for falling and rising, got {rate}.")
    return float(rate[0]), float(rate[1])
