"""Names that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["late", "lazily"]


def lazily(
    package: str, names: Mapping[str, Sequence[str]], modules: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """A package's `__getattr__`, so that importing the package does not import torch.

    Args:
        package: its `__name__`.
        names: the names each of its modules provides.
        modules: names that stand for a whole module.

    Returns:
        A function that imports a name and keeps it in the package.
    """
    home = {name: module for module, provided in names.items() for name in provided}

    def find(name: str) -> Any:
        if name in home:
            found = getattr(import_module(f"{package}.{home[name]}"), name)
        elif modules and name in modules:
            found = import_module(f"{package}.{modules[name]}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, found)
        return found

    return find


def late(place: str) -> Any:
    """Something of gateon by its place, imported when it is asked for.

    It is how an object of one room offers what is made of it in a room above, such as its figures.

    >>> late("lazy:late") is late
    True
    """
    module, _, name = place.partition(":")
    return getattr(import_module(f"{__package__}.{module}"), name)
