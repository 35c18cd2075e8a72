"""Sections of options as TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

__all__ = ["from_toml", "to_toml"]


def to_toml(options: Mapping[str, Any]) -> str:
    """Options as TOML, a table for every section; TOML has no None, which becomes "none".

    >>> print(to_toml({"seed": 0, "method": {"rate": {"conv*": 0.1}, "rule": None}}))
    seed = 0
    <BLANKLINE>
    [method]
    rate = {"conv*" = 0.1}
    rule = "none"
    <BLANKLINE>
    """
    top = {name: value for name, value in options.items() if not isinstance(value, Mapping)}
    lines = _lines(top)
    for name, section in options.items():
        if isinstance(section, Mapping):
            lines += ["", f"[{name}]", *_lines(section)]
    return "\n".join(lines) + "\n"


def from_toml(text: str) -> dict[str, Any]:
    """Options as `to_toml` wrote them.

    >>> from_toml("seed = 0\\n[method]\\nname = 'ewc'")
    {'seed': 0, 'method': {'name': 'ewc'}}
    """
    return tomllib.loads(text)


def _lines(section: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in section.items()]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return _text(value)


def _text(value: Any) -> str:
    if value is None:
        return '"none"'
    # TOML writes numbers and strings as JSON does, but for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
