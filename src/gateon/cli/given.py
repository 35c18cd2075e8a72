"""Options of runs among the words of a command that has options of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..options.declared import Option
from ..options.kinds import flag, flag_off, item_of, nearest, read

__all__ = ["given_options"]


def given_options(
    words: Sequence[str], own: Collection[str], known: Mapping[str, Option]
) -> tuple[dict[str, Any], list[str]]:
    """What the words say of runs, and the words that are left.

    An option of runs may be written without its section, if no other has its name.

    Args:
        words: that follow the name of a command.
        own: the options of the command itself, as they are written.
        known: the options of its runs, by dotted name.

    >>> given_options(["a", "--steps", "9", "--quiet"], ["--quiet"], {"t.steps": Option("steps", int, 1, "")})
    ({'t.steps': 9}, ['a', '--quiet'])
    """
    spelt = {flag(name): name for name in known}
    short = [name.rpartition(".")[2] for name in known]
    spelt |= {
        flag(n.rpartition(".")[2]): n for n in known if short.count(n.rpartition(".")[2]) == 1
    }
    off = {flag_off(name): name for name in known if known[name].kind is bool}
    given: dict[str, Any] = {}
    rest: list[str] = []
    place = 0
    while place < len(words):
        option, equals, value = words[place].partition("=")
        place += 1
        option = option.replace("_", "-")
        if not option.startswith("--") or option in own:
            rest.append(words[place - 1])
            continue
        if option not in spelt and option not in off:
            hint = nearest(option, [*own, *spelt])
            raise ValueError(f"Neither the command nor its runs have the option {option}{hint}.")
        name = spelt.get(option) or off[option]
        if known[name].kind is bool and not equals:
            given[name] = option in spelt
            continue
        held = [value] if equals else []
        many = item_of(known[name].kind) is not None
        while not equals and place < len(words) and (many or not held):
            if words[place].startswith("--"):
                break
            held.append(words[place])
            place += 1
        if not held:
            raise ValueError(f"{option} needs a value.")
        given[name] = _value(held, known[name])
    return given, rest


def _value(words: Sequence[str], option: Option) -> Any:
    item = item_of(option.kind)
    return read(words[0], option.kind) if item is None else tuple(read(w, item) for w in words)
