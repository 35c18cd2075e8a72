"""Specifications by the short names of their options."""

from __future__ import annotations

from gateon.runs.legacy import NAMES as OLD
from gateon.runs.resolve import options_for
from gateon.runs.specification import Specification

NAMES = {"method": "method.name", "network": "network.kind", "preset": "method.preset"}


def specified(stream, **options):
    """A specification from options without their section: lr for training.lr, hidden, density."""
    return Specification.from_options({"stream.name": stream, **dotted(stream, **options)})


def dotted(stream, **options):
    """Options by their dotted names: those of the stream, method and network, or any."""
    known = options_for(stream, options.get("method", "n-gateon"), options.get("network"))
    found = {}
    for name, value in options.items():
        section = next((s for s, of_it in known.items() if name in of_it), None)
        usual = OLD.get(name, f"method.{name}") if section is None else f"{section}.{name}"
        found[NAMES.get(name, usual)] = value
    return found
