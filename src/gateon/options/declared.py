"""Options as the code declares them: the fields of a dataclass, or the signature of a function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

from .kinds import plain

__all__ = ["Option", "declared", "descriptions"]


@dataclass(frozen=True)
class Option:
    """One option.

    Args:
        name: without its section.
        kind: the annotation, with only those kinds that can be written in a file.
        default: its value unless another is given.
        about: one sentence, from the docstring.
    """

    name: str
    kind: Any
    default: Any
    about: str


def declared(thing: Callable[..., Any], without: Collection[str] = ()) -> dict[str, Option]:
    """The options of a dataclass or function by name; arguments without a default are no options.

    Args:
        thing: the dataclass or function.
        without: names that are decided elsewhere.

    >>> @dataclass
    ... class Asked:
    ...     '''Asked.
    ...
    ...     Args:
    ...         steps: batches of a task.
    ...     '''
    ...     steps: int = 3
    >>> declared(Asked)["steps"].about
    'batches of a task.'
    """
    return {name: option for name, option in _declared(thing).items() if name not in without}


@cache
def _declared(thing: Callable[..., Any]) -> dict[str, Option]:
    hints, about = get_type_hints(thing, include_extras=True), descriptions(thing)
    found = {}
    for name, parameter in inspect.signature(thing).parameters.items():
        kind = plain(hints.get(name, Any))
        if kind is not None and parameter.default is not parameter.empty:
            found[name] = Option(name, kind, parameter.default, about.get(name, ""))
    return found


def descriptions(thing: Callable[..., Any]) -> dict[str, str]:
    """What the docstring says of each argument; a class goes before its bases."""
    kinds = inspect.getmro(thing) if inspect.isclass(thing) else (thing,)
    found: dict[str, str] = {}
    for kind in reversed(kinds):
        text = inspect.cleandoc(kind.__doc__ or "")
        _, _, arguments = text.partition("\nArgs:\n")
        block = re.split(r"\n(?=\S|>>>)", arguments)[0]
        for entry in re.split(r"\n(?= {4}\w)", "\n" + block):
            names, colon, words = entry.strip().partition(":")
            if colon:
                shown = " ".join(words.split())
                found |= {name.strip(): shown for name in names.split(",")}
    return found
