"""The specifications of several methods side by side; `gateon.workers.comparison` runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ..lazy import late
from ..methods.registry import method_options
from ..options.kinds import Within, flag
from .record import Record
from .specification import Specification

__all__ = ["Comparison", "Seeds", "side_by_side"]

Seeds = Annotated[int, Within(1, 10_000)]  # of one comparison


class Comparison(dict[str, list[Record]]):
    """The records of several methods, by method, one for each seed; a notebook shows the table."""

    @property
    def plot(self) -> Any:
        """Its figures: matrix() and curves(); see `gateon.pages.plots`."""
        return late("pages.plots:ComparisonPlots")(self)

    def __repr__(self) -> str:
        """Its methods, and how many seeds."""
        return f"<Comparison of {', '.join(self)}: {max(map(len, self.values()), default=0)} seeds>"

    def _repr_html_(self) -> str:
        from .shown import comparison_html

        return comparison_html(self)


def side_by_side(
    specification: Specification, methods: Sequence[str], options: Mapping[str, Any]
) -> dict[str, Specification]:
    """The specification of every method; an option that none of them has is an error.

    >>> asked = Specification.from_options({"stream.name": "split-mnist"})
    >>> two = side_by_side(asked, ["ewc", "finetune"], {"method.strength": 5.0})
    >>> two["ewc"]["method.strength"], two["finetune"].get("method.strength")
    (5.0, None)
    """
    if not methods:
        raise ValueError("Name at least one method to compare.")
    known = {name: {f"method.{option}" for option in method_options(name)} for name in methods}
    for option in options:
        if not any(option in own for own in known.values()):
            names = ", ".join(methods)
            raise ValueError(f"None of {names} has the option {flag(option)}: leave it out.")
    return {
        name: specification.with_options(
            {"method.name": name} | {o: v for o, v in options.items() if o in own}
        )
        for name, own in known.items()
    }
