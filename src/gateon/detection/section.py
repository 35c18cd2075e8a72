"""The section [detector] of a specification: whether contexts are known, and else how inferred."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ..options.declared import Option, declared
from .detector import ContextDetector

__all__ = ["Detector", "detector_defaults", "detector_options"]

PRINTED = {"asc": "paper-asc", "dsc": "paper-dsc", "news20": "paper-20news"}


@dataclass(frozen=True)
class Detector:
    """Where contexts come from.

    Args:
        contexts: whether contexts are known or inferred from the loss.
        preset: settings of the inference: best, or the paper's algorithm.
        options: of `ContextDetector`, where contexts are inferred.
    """

    contexts: Literal["known", "inferred"] = "known"
    preset: Literal["best", "paper"] = "best"
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> ContextDetector | None:
        """The detector; None where contexts are known."""
        return None if self.contexts == "known" else ContextDetector(**self.options)


def detector_options() -> dict[str, Option]:
    """The options of the inference.

    >>> list(detector_options())[:2]
    ['threshold', 'window']
    """
    return declared(ContextDetector)


def detector_defaults(preset: str, stream: str) -> dict[str, Any]:
    """The values of a preset; the paper has other ones for texts.

    >>> detector_defaults("paper", "asc")["threshold"]
    1.1
    """
    printed = PRINTED.get(stream, "paper-mnist")
    values = asdict(ContextDetector.preset(printed if preset == "paper" else "best"))
    return {name: values[name] for name in detector_options()}
