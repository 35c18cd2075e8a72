"""A stream from the settings that a record keeps."""

from __future__ import annotations

from typing import Any

from .base import Stream
from .compose import blurred, recurring
from .data.images import augmented
from .registry import open

__all__ = ["remake"]


def remake(settings: dict[str, Any]) -> Stream:
    """The stream that has these `settings`, as a record keeps them.

    >>> first = recurring(open("permuted-mnist", tasks=2, data="mnist-5k"), repeats=2)
    >>> remake(first.settings).fingerprint(3) == first.fingerprint(3)
    True
    """
    rest = dict(settings)
    name = rest.pop("stream")
    tokenizer = rest.pop("tokenizer", None)
    if name not in ("recurring", "blurred", "augmented"):
        made = open(name, **_as_called_now(rest))
        if made.settings.get("tokenizer") != tokenizer:
            raise ValueError(
                f"The tokenizer of {rest['model']} is not the one of these settings: "
                "it has another vocabulary."
            )
        return made
    stream = remake(rest.pop("of"))
    if name == "augmented":
        return augmented(stream)
    return (
        recurring(stream, rest["order"])
        if name == "recurring"
        else blurred(stream, rest["width"], rest["seed"])
    )


def _as_called_now(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of older records under today's names.

    >>> _as_called_now({"digits": 2, "largest": 1 << 30})
    {'classes_per_task': 2, 'data_limit': 1.0}
    """
    named = {"digits": "classes_per_task", "largest": "data_limit"}
    return {
        named.get(name, name): value / (1 << 30) if name == "largest" else value
        for name, value in settings.items()
    }
