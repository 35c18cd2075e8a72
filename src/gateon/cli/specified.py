"""The options of run and compare: a specification, perhaps from a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from ..runs.language import USUAL, is_text
from ..runs.specification import Specification
from .parse import Command

__all__ = ["Options", "short_name", "with_file"]

Options = Annotated[Specification, tyro.conf.arg(name=""), tyro.conf.PositionalMetavarFromFieldName]


def with_file(command: Command, words: list[str]) -> tuple[Command, list[str]]:
    """Take the defaults from the .toml file in place of the stream, or from those of texts."""
    place = _file_or_text(words)
    if place is None:
        return command, words
    name = words[place]
    start = Specification(name, **USUAL) if is_text(name) else Specification.load(Path(name))
    return partial(command, options=start), [*words[:place], *words[place + 1 :]]


def short_name(stream: str) -> str:
    """A stream's name as part of a directory's name."""
    kind, colon, path = stream.partition(":")
    return f"{kind}-{Path(path).resolve().name}" if colon else stream


def _file_or_text(words: list[str]) -> int | None:
    own = ("-", "own:")  # such a word may end in .toml and not be a specification
    found = (
        place
        for place, word in enumerate(words)
        if is_text(word) or (word.endswith(".toml") and not word.startswith(own))
    )
    return next((n for n in found if not n or words[n - 1] not in ("--save-spec", "--out")), None)
