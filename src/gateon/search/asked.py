"""What is searched, and the specification of each trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..methods.registry import METHODS, method_options
from ..options.declared import Option
from ..runs.resolve import options_for
from ..runs.specification import Specification
from .ranges import Choice, Range, Span, read_over, value_of

__all__ = ["AIMS", "Aim", "Search", "methods_in"]

Aim = Literal["continual_accuracy", "final_accuracy", "immediate_accuracy", "forgetting_rate"]
AIMS: Mapping[str, str] = {
    "continual_accuracy": "maximize",
    "final_accuracy": "maximize",
    "immediate_accuracy": "maximize",
    "forgetting_rate": "minimize",
}


@dataclass(frozen=True)
class Search:
    """What is searched, around which settings, and what counts as best.

    Args:
        base: everything that is not searched; measured on validation data.
        own: further options of methods by dotted name, for those methods that have them.
        over: the ranges.
        aim: the figure of a run that counts.
        sampler: how settings are proposed.
        prune: whether poor trials are ended early.
    """

    base: Specification
    own: Mapping[str, Any]
    over: Mapping[str, Range]
    aim: Aim = "continual_accuracy"
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    prune: Literal["median", "none"] = "median"

    @classmethod
    def of(
        cls,
        base: Specification,
        over: str,
        own: Mapping[str, Any] | None = None,
        *,
        aim: Aim = "continual_accuracy",
        sampler: Literal["tpe", "random", "grid"] = "tpe",
        prune: Literal["median", "none"] = "median",
    ) -> Search:
        """Read the ranges, and refuse what none of the runs could do.

        Args:
            base: the settings to search around.
            over: as `ranges.read_over` reads it.
            own: options of methods by dotted name.
            aim, sampler, prune: see the class.

        >>> asked = Specification.from_options({"stream.name": "split-mnist"})
        >>> search = Search.of(asked, "method.density=0.1..0.5")
        >>> search.specification({"method.density": 0.25})["measuring.part"]
        'validation'
        """
        if not over.strip():
            raise ValueError("Say what is searched, as in --over method.rate=0.001..0.3:log.")
        known = _known(base, methods_in(over, base.method.name))
        ranges = read_over(over, known)
        if "measuring.part" in ranges or "measuring.evaluate" in ranges or "seed" in ranges:
            raise ValueError(
                "--over must list settings that a run learns with, not how it is measured."
            )
        if sampler == "grid" and any(isinstance(one, Span) for one in ranges.values()):
            raise ValueError("--sampler grid needs values, as in a|b|c, for everything in --over.")
        found = cls(
            base.with_options({"measuring.part": "validation"}),
            dict(own or {}),
            ranges,
            aim,
            sampler,
            prune,
        )
        for name, one in ranges.items():  # each end by itself is a run that could be made
            for end in one.ends:
                for method in found.methods if name.startswith("method.") else (None,):
                    if method is None or name in ("method.name", *_names_of(method)):
                        chosen = {} if method is None else {"method.name": method}
                        found.specification(chosen | {name: end})
        return found

    @property
    def methods(self) -> Sequence[str]:
        """The methods that may be tried."""
        named = self.over.get("method.name")
        return named.words if isinstance(named, Choice) else (self.base.method.name,)

    def belongs(self, name: str, method: str) -> bool:
        """Whether an option is searched where a method is tried."""
        own = name.startswith("method.") and name != "method.name"
        return not own or name in _names_of(method)

    def specification(self, settings: Mapping[str, Any]) -> Specification:
        """The run of a trial.

        Args:
            settings: values of what is searched, choices as they were written.
        """
        method = str(settings.get("method.name", self.base.method.name))
        known = _known(self.base, [method])
        values = {
            name: value_of(name, value, known[name]) if isinstance(value, str) else value
            for name, value in settings.items()
        }
        own = {name: value for name, value in self.own.items() if name in _names_of(method)}
        start = self.base.with_options({"method.name": method})
        return start.with_options(own | values)


def methods_in(over: str, usual: str) -> list[str]:
    """The methods that --over lists, or the usual one.

    >>> methods_in("training.lr=0.1|0.2,method.name=ewc|si", "n-gateon")
    ['ewc', 'si']
    """
    for part in over.split(","):
        name, equals, values = part.strip().partition("=")
        if equals and name.removeprefix("--") == "method.name":
            return [word for one in values.split("|") if (word := one.strip()) in METHODS] or [
                usual
            ]
    return [usual]


def _names_of(method: str) -> set[str]:
    return {f"method.{name}" for name in (*method_options(method), "preset")}


def _known(base: Specification, methods: Sequence[str]) -> dict[str, Option]:
    """All options of a run with one of the methods, by dotted name."""
    found: dict[str, Option] = {}
    for method in methods:
        sections = options_for(base.stream.name, method, base.network.kind)
        for section, options in sections.items():
            found |= {f"{section}.{name}": option for name, option in options.items()}
    return found
