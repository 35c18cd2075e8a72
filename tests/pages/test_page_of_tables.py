"""The page of reproduced tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateon.cli.reproduce import _show_table
from gateon.pages.kinds import facts
from gateon.pages.page import page
from gateon.reproduce import load, read
from page_records import reproduced

RESULTS = Path(__file__).parents[2] / "results"


def test_ours_and_the_printed_numbers_are_there(tmp_path):
    table = facts([reproduced(tmp_path)])["tables"][0]
    assert table["paper"]["EWC"]["permuted-mnist"]["continual_accuracy"] == 89.0
    entry = table["entries"][0]
    assert entry["measures"]["continual_accuracy"]["each"] == [0.89, 0.91]
    assert entry["commits"] == ["0123456789ab"]
    assert [m["best"] for m in table["measures"]] == ["max", "min"]
    heads = [one["head"] for one in table["findings"]]
    assert heads == ["1 of 1", "+1.0 points", "2 seeds"]


def test_reproduce_leaves_the_page_beside_the_table(tmp_path, capsys):
    (reproduced(tmp_path) / "table.md").write_text("# A table\n")
    _show_table(tmp_path)
    assert capsys.readouterr().out.endswith(f"page: {tmp_path / 'report.html'}\n")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_a_page_that_cannot_be_made_costs_no_result(tmp_path, capsys):
    (reproduced(tmp_path, streams=None) / "table.md").write_text("# A table\n")
    _show_table(tmp_path)
    said = capsys.readouterr()
    assert "No page was made: " in said.err and "page:" not in said.out


def test_a_directory_of_tables_is_one_page(tmp_path):
    reproduced(tmp_path / "table-a", title="First")
    reproduced(tmp_path / "table-b", title="Second")
    found = facts([tmp_path])
    assert [table["title"] for table in found["tables"]] == ["First", "Second"]


@pytest.mark.parametrize("place", sorted(RESULTS.glob("paper/table-*")), ids=lambda p: p.name)
def test_every_record_of_the_project_has_a_page(place):
    found = facts([place])
    table = found["tables"][0]
    content = read(place / "record.json")
    claims = [*load(table["name"]).claims, *load(table["name"]).targets]
    assert [claim["says"] for claim in table["claims"]] == [claim.says for claim in claims]
    assert len(table["entries"]) == len(content["entries"])
    assert len(page(found)) < 1_000_000


def test_the_figure_beside_a_record_is_inside_the_page(tmp_path):
    reproduced(tmp_path)
    (tmp_path / "figure.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    found = facts([tmp_path])
    assert found["tables"][0]["figure"].startswith("data:image/svg+xml;base64,")
    assert "<svg" not in page(found)


def test_a_record_with_gaps_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="is no record of gateon reproduce, or a damaged one"):
        facts([reproduced(tmp_path, streams=None, paper=3)])
