"""Relative links in README and docs lead to files that exist, and results are in groups."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/**/*.md")]
GROUPS = {"paper", "comparison", "search", "cost", "reliability", "demo", "life"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    targets = [link.partition("#")[0] for link in links if "://" not in link]
    assert not [target for target in targets if not (page.parent / target).exists()]


def test_every_result_is_in_a_group():
    places = {path.parent.relative_to(ROOT / "results") for path in ROOT.glob("results/**/*.json")}
    assert places
    assert {place.parts[0] for place in places} <= GROUPS
    assert all(len(place.parts) == 2 for place in places), "results/GROUP/NAME/record.json"
