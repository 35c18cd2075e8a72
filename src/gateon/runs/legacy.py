"""Options as they were called when a specification was flat: old .toml files and old records.

Nothing else knows the old names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..methods.registry import METHODS, needs
from ..methods.section import is_gateon
from ..networks.section import KINDS
from ..options.declared import declared
from ..options.kinds import nearest
from ..streams.registry import entry

__all__ = ["NAMES", "is_flat", "nested"]

_SECTIONS: dict[str, tuple[str, ...]] = {
    "stream": (
        *("tasks", "angles", "repeats", "classes_per_task", "order", "length", "limit"),
        *("keep_headers", "augment", "data", "data_limit"),
    ),
    "network": (
        *("hidden", "channels", "depth", "widen", "heads", "model", "pooling", "norm"),
        *("input_dropout", "dropout"),
    ),
    "training": (
        *("steps", "epochs", "batch", "lr", "optimizer", "keep_optimizer", "schedule", "warm_up"),
        *("label_smoothing", "class_weights", "precision", "device", "threads"),
    ),
    "method": (
        *("strength", "memory", "preset", "density", "start", "steepness", "shared", "rescale"),
        *("rate", "epsilon", "floor", "relevance", "apply", "obstruct_head", "prefer", "inherit"),
        "gate_penalty",
    ),
    "detector": ("contexts", "threshold", "window"),
    "measuring": ("evaluate", "curves", "part"),
}
NAMES: dict[str, str] = {
    "seed": "seed",
    "stream": "stream.name",
    "method": "method.name",
    "network": "network.kind",
    "detector": "detector.preset",
    "rotation_step": "stream.step",
    "random_parts": "stream.by_date",
    **{name: f"{section}.{name}" for section, names in _SECTIONS.items() for name in names},
}
# Gate options were ignored by other methods, and these stood in every file.
_GATES = _SECTIONS["method"][3:]
# Streams of texts were trained like images unless the file said otherwise.
_AS_IMAGES = {"steps": 250, "batch": 500, "lr": 5e-3, "optimizer": "adam"}


def is_flat(options: Mapping[str, Any]) -> bool:
    """Whether options are in the old form, in which the stream was a word and not a section.

    >>> is_flat({"stream": "permuted-mnist", "lr": 0.1}), is_flat({"stream": {"name": "asc"}})
    (True, False)
    """
    return isinstance(options.get("stream"), str)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Old options under their dotted names of today; those that did nothing are left out.

    >>> nested({"stream": "split-mnist", "method": "xdg", "settings": "off=0.6", "depth": 16})
    {'stream.name': 'split-mnist', 'method.name': 'xdg', 'method.off': 0.6}
    """
    given = {name: value for name, value in flat.items() if value is not None}
    for name in given:
        if name not in NAMES and name != "settings" and "." not in name:
            raise ValueError(
                f"There is no option {name!r}{nearest(name, NAMES)}: see gateon run --help."
            )
    stream, method = given["stream"], given.get("method", "n-gateon")
    if entry(stream).network == "language":
        given = {**_AS_IMAGES, **given}
    for name in _without_effect(given, stream, method):
        given.pop(name, None)
    if "random_parts" in given:
        given["random_parts"] = not given["random_parts"]
    found = dict(_numbers(given.pop("settings", "")))
    return {NAMES.get(name, name): value for name, value in given.items()} | {
        f"method.{name}": value for name, value in found.items()
    }


def _without_effect(given: Mapping[str, Any], stream: str, method: str) -> set[str]:
    """The names of options that were allowed, or written into every file, and did nothing."""
    usual = entry(stream).network
    kind = usual if usual == "language" else given.get("network", usual)
    sizes = {"hidden", "channels", "depth", "widen", "input_dropout", "dropout"}
    idle = sizes - (declared(KINDS[kind]).keys() if kind in KINDS else set())
    if given.get("input_dropout") or given.get("dropout"):  # these were refused
        idle -= {"input_dropout", "dropout"}
    idle |= {name for name in ("random_parts", "keep_headers", "angles") if not given.get(name)}
    if "epochs" in given:
        idle.add("steps")
    if given.get("contexts", "known") == "known":
        idle.add("detector")
    if method in METHODS and not is_gateon(method):
        idle |= set(_GATES)
    if method == "gating-only":
        idle.add("rate")
    if method == "ogd":
        idle.add("optimizer")
    if method in METHODS and "heads" in needs(method):
        idle.add("heads")
    return idle


def _numbers(settings: str) -> dict[str, float | int]:
    """The old a=1,b=2.

    >>> _numbers("tasks=3,damping=0.01")
    {'tasks': 3, 'damping': 0.01}
    """
    try:
        pairs = [part.split("=") for part in settings.split(",") if settings]
        values = {name.strip(): float(number) for name, number in pairs}
    except ValueError:
        raise ValueError(
            f"settings must be names with numbers, such as damping=0.01,off=0.6, got {settings!r}."
        ) from None
    return {name: int(v) if v.is_integer() else v for name, v in values.items()}
