"""The template of a file of gates, checked before anything is loaded from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from ...anatomy.sites import Site
from ...storage.states import ANYTHING, COUNT, FLAG, NUMBER, Partly, Rule, Whole, check

__all__ = ["state_like"]


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


TEXT = Rule(lambda value: isinstance(value, str), "be a string")
NAMES = Rule(_are_names, "be a list of names")
# The fields of a site, by their annotations.
FIELDS = {"str": TEXT, "int": Whole(-8, 1 << 31), "bool": FLAG, "tuple[str, ...]": NAMES}


def state_like(state: Any) -> dict[str, Any]:
    """The template of a file of gates, before its model is known."""
    weights = state["gates"]
    row = Rule(_is_weight, "have one row per context")
    check(weights, dict.fromkeys(weights, row), "gates")
    contexts = {len(weight) for weight in weights.values()}
    if len(contexts) != 1:
        raise ValueError("gates must all have the same number of rows")
    index = Whole(0, contexts.pop() - 1)
    held = state["context"]
    known = {f.name: FIELDS[str(f.type)] for f in fields(Site)}
    for site in state["sites"]:
        _known(site, known, "sites")
    sites = [Partly(known, ("name", "place", "owns", "units")) for _ in state["sites"]]
    rules = state["rules"]
    return {
        "gates": ANYTHING,
        "sites": sites,
        "arguments": _known(state["arguments"], ARGUMENTS, "arguments"),
        "context": [index for _ in held] if isinstance(held, list) and held else index,
        "rules": None if rules is None else _known(rules, RULES, "rules"),
        "availability": None if rules is None else ANYTHING,
        "classifier": None if state["classifier"] is None else CLASSIFIER,
    }


def _known(held: Mapping[str, Any], like: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The template of a dict that may lack entries added since; ValueError for unknown ones."""
    unknown = set(held) - set(like)
    if unknown:
        raise ValueError(f"{name} have no {min(map(str, unknown))!r}")
    return {key: like[key] for key in held}


def _is_weight(value: Any) -> bool:
    is_matrix = isinstance(value, Tensor) and value.is_floating_point() and value.dim() == 2
    return is_matrix and min(value.shape) > 0


def _are_rates(value: Any) -> bool:
    """Whether it is a number, a pair of them, "room", or a dict of these by patterns of names."""
    if value == "room":
        return True
    if isinstance(value, Mapping):
        return all(
            isinstance(name, str) and not isinstance(one, Mapping) and _are_rates(one)
            for name, one in value.items()
        )
    pair = value if isinstance(value, list) and len(value) == 2 else [value]
    return all(NUMBER.accepts(one) for one in pair)


RATES = Rule(_are_rates, "be a number, a pair of numbers, or a dict of these by patterns of names")
ARGUMENTS = {
    "density": RATES,
    "start": Rule(
        lambda value: isinstance(value, str) or NUMBER.accepts(value), "be a string or a number"
    ),
    "power": Whole(1, 1000),
    "width": NUMBER,
    "steepness": NUMBER,
    "shared": Rule(lambda value: isinstance(value, str) or _are_names(value), "be names"),
    "in_turn": FLAG,
    "before_norm": FLAG,
    "batch_dim": Whole(-8, 8),
    "seed": Whole(0, 1 << 63),
}
RULES = {
    "per": TEXT,
    "rate": RATES,
    "epsilon": NUMBER,
    "gather_after": NUMBER,
    "floor": NUMBER,
    "relevance": TEXT,
    "apply": TEXT,
    "scale": TEXT,
    "head": FLAG,
    "frozen": NAMES,
    "bias_apart": FLAG,
    "first_rate": Rule(lambda value: value is None or NUMBER.accepts(value), "be a number or None"),
    "rule": None,
}
CLASSIFIER = {
    "pad": Whole(-1),
    "separator": Rule(
        lambda value: value is None or (type(value) is int and 0 <= value <= COUNT.high),
        "be a token or None",
    ),
    "pooling": Rule(
        lambda value: isinstance(value, str) and value in ("mean", "first"), "be mean or first"
    ),
    "dropout": Rule(lambda value: NUMBER.accepts(value) and 0 <= value <= 1, "be between 0 and 1"),
    "head": {
        "weight": Rule(_is_weight, "have one row per class"),
        "bias": Rule(
            lambda value: isinstance(value, Tensor) and value.is_floating_point(),
            "have one number per class",
        ),
    },
}
