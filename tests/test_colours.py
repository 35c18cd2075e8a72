"""One colour is one method, everywhere, and readers who lack one kind of cones tell them apart."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from gateon.methods.registry import METHODS as EVERY
from gateon.report.colours import METHODS, PALETTE, colours, method_of, shades
from gateon.reproduce import load, names

# How linear red, green and blue are seen, after Machado, Oliveira and Fernandes (2009).
SEEN = {
    "three cones": np.eye(3),
    "no long ones": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no middle ones": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no short ones": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
# From linear red, green and blue to Oklab, in which distances are those that eyes see.
TO_CONES = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
TO_LAB = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]


def seen(colour, eyes):
    parts = np.array([int(colour[n : n + 2], 16) for n in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return TO_LAB @ np.cbrt(np.clip(TO_CONES @ (SEEN[eyes] @ linear), 0, None))


@pytest.mark.parametrize("eyes", SEEN)
def test_the_colours_of_the_palette_are_told_apart(eyes):
    pairs = combinations(PALETTE, 2)
    apart = {pair: np.linalg.norm(seen(pair[0], eyes) - seen(pair[1], eyes)) for pair in pairs}
    assert min(apart.values()) > 0.07, min(apart, key=apart.get)


def test_every_method_has_a_colour_and_none_is_shared():
    assert METHODS.keys() == EVERY.keys()
    assert len(set(METHODS.values())) == len(METHODS)


def test_a_method_keeps_its_colour_whatever_stands_beside_it():
    some, others = colours(["finetune", "n-gateon", "ewc"]), colours(["n-gateon", "si", "finetune"])
    assert all(some[name] == others[name] for name in ("finetune", "n-gateon"))


def test_labels_of_one_method_are_shades_of_its_colour():
    found = colours(["n-GateON 0", "n-GateON 0.5", "n-GateON 1", "EWC, online", "EWC"])
    assert found["n-GateON 0.5"] == METHODS["n-gateon"] and len(set(found.values())) == 5
    assert found["EWC, online"] == METHODS["ewc-online"] and found["EWC"] == METHODS["ewc"]
    assert shades(METHODS["si"], 2)[0] != shades(METHODS["si"], 2)[1]


def test_what_is_no_method_takes_no_colour_of_one_beside_it():
    found = colours(["mine", "yours", *PALETTE, "n-gateon"])
    assert METHODS["n-gateon"] not in [found[name] for name in found if name != "n-gateon"]
    assert colours(["fast"], {"fast": "xdg"}) == {"fast": METHODS["xdg"]}


@pytest.mark.parametrize("name", ["comparison", "comparison-wide", "table-native"])
def test_the_labels_of_tables_name_their_methods(name):
    assert name in names()
    for row in load(name).rows:
        assert method_of(row.label) == row.options["method.name"], row.label
