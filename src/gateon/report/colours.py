"""One colour per method, the same in every picture, told apart by colour-blind readers too."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["PALETTE", "colours"]

# Okabe and Ito's colours, without their yellow and black, then three of Tol's.
PALETTE = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"),
    *("#882255", "#999933", "#6f6f6f"),
)
FIXED = {"n-gateon": PALETTE[0], "p-gateon": PALETTE[1], "finetune": PALETTE[8]}


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour per method: fixed for some, by order for the rest.

    >>> colours(["finetune", "ewc"])
    {'finetune': '#6f6f6f', 'ewc': '#009e73'}
    """
    found, free = {}, [colour for colour in PALETTE if colour not in FIXED.values()]
    others = 0
    for name in names:
        if name in FIXED:
            found[name] = FIXED[name]
        else:
            found[name] = free[others % len(free)]
            others += 1
    return found
