"""What the parts of a data set are called."""

from ..streams.parts import PARTS, Part

__all__ = ["PARTS", "part_of"]

_SPELLINGS: dict[str, Part] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}


def part_of(word: object) -> Part | None:
    """Which part a word names, if one.

    >>> part_of("Dev"), part_of("banking")
    ('validation', None)
    """
    return _SPELLINGS.get(str(word).strip().lower())
