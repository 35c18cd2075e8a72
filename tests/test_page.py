"""The page of a report: what it says of runs, and that nothing in it can do harm."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from gateon.cli import main
from gateon.report.facts import facts, similarity_order
from gateon.report.page import page
from gateon.runs.record import Record
from gateon.storage import checkpoint

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028\x1b[31m"


def left(folder, accuracy, *, method="ewc", seed=0, **changes):
    """A directory as a run leaves it."""
    asked = {"seed": seed, "stream": {"name": "permuted-mnist"}, "method": {"name": method}}
    record = Record(
        f"permuted-mnist {method}",
        asked,
        {"name": "mnist"},
        tasks=[f"task {k}" for k in range(len(accuracy))],
        accuracy=accuracy,
        seconds=[{"train": 2.0, "evaluate": 1.0}] * len(accuracy),
        curves=[[] for _ in accuracy],
        numerics=changes.pop("numerics", 1),
        **changes,
    )
    folder.mkdir(parents=True, exist_ok=True)
    record.save(folder / "record.json")
    return folder


def held(text):
    """The facts inside a page."""
    return json.loads(re.search(r'id="facts">(.*?)</script>', text, re.S)[1])


def test_methods_are_summed_up_over_seeds(tmp_path):
    left(tmp_path / "ewc-0", [[0.9], [0.5, 0.9]])
    left(tmp_path / "ewc-1", [[0.8], [0.7, 0.8]], seed=1)
    left(tmp_path / "n-gateon-0", [[0.9], [0.9, 0.9]], method="n-gateon")
    left(tmp_path / "isolated-abc", [[1.0], [1.0, 1.0]], method="isolated")
    found = facts([tmp_path])
    assert [m["name"] for m in found["methods"]] == ["n-gateon", "ewc"], "the best first"
    ewc = found["methods"][1]
    assert ewc["measures"]["final_accuracy"]["mean"] == pytest.approx((0.7 + 0.75) / 2)
    assert ewc["measures"]["final_accuracy"]["count"] == 2
    assert ewc["curve"][0] == pytest.approx([1, 0.85, np.std([0.9, 0.8], ddof=1)])
    assert len(found["runs"]) == 3 and found["about"].startswith("2 tasks, 2 methods, 2 seeds")


def test_what_was_not_measured_leaves_a_gap(tmp_path):
    left(tmp_path, [[0.9], [None, 0.9], [0.8, 0.8, 0.8]])
    only = facts([tmp_path])["methods"][0]
    assert [point[0] for point in only["curve"]] == [1, 3]
    assert held(page(facts([tmp_path])))["runs"][0]["accuracy"][1] == [None, 0.9]


def test_the_overlap_of_contexts_comes_from_the_last_checkpoint(tmp_path):
    left(tmp_path, [[0.9], [0.9, 0.9]], method="n-gateon")
    gates = torch.tensor([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])
    state = {"learner": {"model": {"1.context_gate.weight": gates}}}
    checkpoint.save(state, tmp_path / "checkpoint-0002-000000.safetensors")
    seen = facts([tmp_path])["runs"][0]["gates"]
    assert seen["units"] == 4
    assert seen["overlap"] == [
        [1.0, pytest.approx(1 / 3, abs=1e-4)],
        [pytest.approx(1 / 3, abs=1e-4), 1.0],
    ]


def test_similar_contexts_stand_together():
    similarity = np.full((6, 6), 0.1)
    for family in ([0, 3, 5], [1, 2, 4]):
        similarity[np.ix_(family, family)] = 0.9
    order = similarity_order(similarity)
    assert {frozenset(order[:3]), frozenset(order[3:])} == {
        frozenset([0, 3, 5]),
        frozenset([1, 2, 4]),
    }


def test_hostile_names_are_text(tmp_path):
    left(tmp_path, [[0.9]], method=HOSTILE)
    text = page(facts([tmp_path]))
    assert "<script>alert" not in text and "<img" not in text and "\u2028" not in text
    assert text.count("</script>") == 2 and "\x1b" not in text
    assert held(text)["methods"][0]["name"].startswith("</script><script>alert(1)")


def test_the_page_fetches_nothing(tmp_path):
    text = page(facts([left(tmp_path, [[0.9]])]))
    assert not re.search(r"(src|href)\s*=|@import|url\(|fetch\(|XMLHttpRequest", text)
    assert "default-src 'none'" in text.replace("&#x27;", "'")


def test_a_hundred_tasks_stay_small(tmp_path):
    tasks = 100
    accuracy = [[0.9 - 0.001 * (k - j) for j in range(k + 1)] for k in range(tasks)]
    room = [{"1": {"frozen": 0.1, "room": 1 - k / 200}} for k in range(tasks)]
    for seed in range(20):
        left(tmp_path / f"ewc-{seed}", accuracy, seed=seed, availability=room)
    assert len(page(facts([tmp_path]))) < 1_500_000


def test_a_reproduced_table_is_shown_by_its_rows(tmp_path):
    entry = {"row": "EWC", "column": "best", "stream": "split-mnist", "seeds": [0, 1]}
    entry["measures"] = {"final_accuracy": {"mean": 0.9, "spread": 0.01}}
    (tmp_path / "record.json").write_text(json.dumps({"entries": [entry, entry | {"row": "SI"}]}))
    found = facts([tmp_path])
    assert [m["name"] for m in found["methods"]] == [
        "EWC, best, split-mnist",
        "SI, best, split-mnist",
    ]
    assert found["methods"][0]["measures"]["final_accuracy"]["count"] == 2 and not found["runs"]


def test_numbers_of_another_version_are_marked(tmp_path):
    note = facts([left(tmp_path, [[0.9]], numerics=0)])["runs"][0]["note"]
    assert "numerics version 0" in note


def test_the_command_writes_the_page(tmp_path, capsys):
    left(tmp_path / "run", [[0.9]])
    assert main(["report", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "run" / "report.html")
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Which runs?"),
        (["nowhere"], "There is no directory nowhere."),
        (["empty"], "empty: no finished run here"),
        (["broken"], "is not a gateon record, or it is damaged"),
    ],
)
def test_bad_directories_are_refused_in_a_sentence(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "record.json").write_text("{")
    assert main(["report", *words]) == 2
    assert told in capsys.readouterr().err
