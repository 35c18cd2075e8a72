"""The parts of a task's data."""

from typing import Literal

__all__ = ["PARTS", "Part"]

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
