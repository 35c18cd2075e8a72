"""One colour per method, the same in every picture, told apart by colour-blind readers too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["METHODS", "PALETTE", "colours", "method_of", "shades"]

# Okabe and Ito's colours, without their yellow and black, then three that differ most from them,
# also to readers who lack one kind of cones; a test measures it.
PALETTE = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"),
    *("#882255", "#5b3fc4", "#6f6f6f"),
)
# Those that are compared most have the colours that differ most; relatives are of one hue, and
# what is no protection at all, or an upper bound, is grey.
METHODS = {
    "n-gateon": PALETTE[0],
    "p-gateon": PALETTE[1],
    "gating-only": "#2a9df4",
    "obstruction-only": "#1f4e8c",
    "ewc": PALETTE[2],
    "ewc-online": "#44c2a0",
    "si": PALETTE[4],
    "xdg": PALETTE[5],
    "xdg+si": "#3f7f93",
    "hat": PALETTE[3],
    "adahat": "#a05080",
    "rmn": PALETTE[6],
    "dendrites": PALETTE[7],
    "dendrites+si": "#8f7be0",
    "ogd": "#999933",
    "lwf": "#117733",
    "replay": "#802a00",
    "zoo": "#c44e52",
    "frozen": "#8d99ae",
    "hat-adapters": "#e08fb5",
    "bcl": "#b5651d",
    "ctr": "#d9a066",
    "lamol": "#9a4fb0",
    "ranpac": "#4daf4a",
    "ncm": "#86b83a",
    "joint": "#8a7560",
    "finetune": PALETTE[8],
    "isolated": "#a3a3a3",
}
# What tables call some of them.
PRINTED = {
    "active dendrites": "dendrites",
    "model zoo": "zoo",
    "experience replay": "replay",
    "joint training": "joint",
    "ewc, online": "ewc-online",
}


def colours(names: Iterable[str], methods: Mapping[str, str] | None = None) -> dict[str, str]:
    """A colour per name: that of the method it names, in a shade of its own if several do.

    A name without a method gets one of the palette that none of the others has, by order.

    Args:
        names: of methods, or labels that begin with one, such as "EWC, online, split".
        methods: by name, where a name does not say it.

    >>> colours(["finetune", "ewc", "mine"])
    {'finetune': '#6f6f6f', 'ewc': '#009e73', 'mine': '#0072b2'}
    >>> colours(["n-GateON 0", "n-GateON 1"])
    {'n-GateON 0': '#00446b', 'n-GateON 1': '#4c9cc9'}
    """
    groups: dict[str | None, list[str]] = {}
    names = list(dict.fromkeys(names))
    for name in names:
        groups.setdefault((methods or {}).get(name) or method_of(name), []).append(name)
    others = groups.pop(None, [])
    found = {
        name: colour
        for method, own in groups.items()
        if method is not None
        for name, colour in zip(own, shades(METHODS[method], len(own)), strict=True)
    }
    taken = {METHODS[method] for method in groups if method is not None}
    free = [colour for colour in PALETTE if colour not in taken]
    found |= {name: free[n % len(free)] for n, name in enumerate(others)}
    return {name: found[name] for name in names}


def method_of(label: str) -> str | None:
    """The method that a label begins with; None if it names none.

    >>> method_of("XdG + SI, best"), method_of("Active dendrites"), method_of("ewcx")
    ('xdg+si', 'dendrites', None)
    """
    words = label.lower().replace(" + ", "+")
    for printed, method in PRINTED.items():
        words = method + words.removeprefix(printed) if words.startswith(printed) else words
    begun = [m for m in METHODS if words == m or words.startswith((f"{m} ", f"{m},", f"{m}:"))]
    return max(begun, key=len, default=None)


def shades(colour: str, count: int) -> list[str]:
    """So many shades of a colour, from dark to light; one is the colour itself.

    >>> shades("#808080", 1), shades("#808080", 3)
    (['#808080'], ['#4d4d4d', '#808080', '#a6a6a6'])
    """
    parts = [int(colour[n : n + 2], 16) for n in (1, 3, 5)]
    found = []
    for n in range(count):
        way = 0.0 if count == 1 else 2 * n / (count - 1) - 1  # from -1, dark, to 1, light
        to, far = (0, -0.4 * way) if way < 0 else (255, 0.3 * way)
        found.append("#" + "".join(f"{round(part + (to - part) * far):02x}" for part in parts))
    return found
