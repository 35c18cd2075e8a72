"""The page of runs and comparisons: what it says of them, and that nothing in it can do harm."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest
import torch

from gateon.cli import main
from gateon.pages.forecast import forecast, more
from gateon.pages.gates import bytes_kept, similarity_order
from gateon.pages.kinds import facts
from gateon.pages.page import page
from gateon.pages.rasters import raster
from gateon.runs.record import TRACE
from gateon.storage import checkpoint
from gateon.tracing.trace import QUANTITIES, Trace
from page_records import HOSTILE, falling, held, inside, left, living, reproduced, unfinished


def the_run(folder):
    return facts([folder])["runs"][0]


def heads(found):
    return {one["to"]: one["head"] for one in found}


def test_methods_are_summed_up_over_seeds(tmp_path):
    left(tmp_path / "ewc-0", [[0.9], [0.5, 0.9]])
    left(tmp_path / "ewc-1", [[0.8], [0.7, 0.8]], seed=1)
    left(tmp_path / "n-gateon-0", [[0.9], [0.9, 0.9]], method="n-gateon")
    left(tmp_path / "isolated-abc", [[1.0], [1.0, 1.0]], method="isolated")
    found = facts([tmp_path])
    assert [m["name"] for m in found["methods"]] == ["n-gateon", "ewc"], "the best first"
    ewc = found["methods"][1]
    assert ewc["measures"]["final_accuracy"]["mean"] == pytest.approx((0.7 + 0.75) / 2)
    assert sorted(ewc["measures"]["final_accuracy"]["each"]) == pytest.approx([0.7, 0.75])
    assert ewc["curve"][0] == pytest.approx([1, 0.85, np.std([0.9, 0.8], ddof=1)])
    assert len(found["runs"]) == 3 and found["about"].startswith("2 tasks, 2 methods, 2 seeds")


def test_a_comparison_says_who_is_ahead_and_how_sure_that_is(tmp_path):
    for seed in (0, 1):
        left(tmp_path / f"a-{seed}", [[0.9], [0.9, 0.9 + seed / 1000]], method="a", seed=seed)
        left(tmp_path / f"b-{seed}", [[0.9], [0.5, 0.9 + seed / 1000]], method="b", seed=seed)
        left(tmp_path / f"joint-{seed}", [[0.9], [0.99, 0.99]], method="joint", seed=seed)
    winner, least, *_ = facts([tmp_path])["findings"]
    assert (
        winner["head"] == "a" and "20.0 points ahead of b, more than seeds differ" in winner["says"]
    )
    assert "forgotten by a" in least["says"], "joint training is no rival"
    one_seed = [tmp_path / "a-0", tmp_path / "b-0"]
    assert "chance is not ruled out" in facts(one_seed)["findings"][0]["says"]


def test_what_was_not_measured_leaves_a_gap(tmp_path):
    left(tmp_path, [[0.9], [None, 0.9], [0.8, 0.8, 0.8]])
    only = facts([tmp_path])["methods"][0]
    assert [point[0] for point in only["curve"]] == [1, 3]
    assert held(page(facts([tmp_path])))["runs"][0]["accuracy"][1] == [None, 0.9]


def test_a_run_says_what_it_comes_down_to(tmp_path):
    room = [{"1": {"frozen": 0.1 * k, "room": 1 - 0.1 * k}} for k in range(1, 7)]
    found = the_run(left(tmp_path, falling(6), availability=room, isolated=[0.9] * 6))["findings"]
    assert heads(found) == {
        "retained": "keeps learning",
        "forgetting": "5.0 points",
        "room": "60 %",
        "cost": "12 s",
    }
    assert found[0]["head"] == "92.5 %" and "lowest is 90.0 %, on task 1" in found[0]["says"]
    assert any(one["head"] == "≈ 3 more" for one in found)
    lost = next(one for one in found if one["head"] == "3.0 points")
    assert lost["mood"] == "warn" and "task 1, which lost 5.0 points" in lost["says"]


def test_a_run_that_fills_up_and_forgets_says_so(tmp_path):
    rows = [[0.95 - 0.06 * k if j == k else 0.5 for j in range(k + 1)] for k in range(6)]
    found = the_run(left(tmp_path, rows))["findings"]
    moods = {one["head"]: one["mood"] for one in found}
    assert moods["−24.0 points"] == "bad" and "bad" in {
        one["mood"] for one in found if one["to"] == "forgetting"
    }


def test_forgetting_of_one_task_is_not_lost_in_the_mean(tmp_path):
    rows = [[0.9], [0.9, 0.5], [0.8, 0.6, 0.9]]
    found = heads(the_run(left(tmp_path, rows))["findings"])
    assert found["forgetting"] == "10.0 points"


def test_what_was_gained_is_not_told_as_a_negative_loss(tmp_path):
    found = the_run(left(tmp_path, falling(3, lost=-0.01)))["findings"]
    (one,) = [finding for finding in found if finding["to"] == "forgetting"]
    assert one["head"] == "1.5 points" and one["mood"] == "good"
    assert (
        one["says"].startswith("gained by a task") and "at least 1.0 points, task 2" in one["says"]
    )


def test_the_forecast_goes_on_as_the_later_half_of_the_tasks_went():
    assert more([0.9, 0.8, 0.7]) == (0.1, 6)
    assert more([0.5, 0.5, 0.5, 0.5]) == (0.0, None), "the first task took it all"
    assert more([0.2, 0.04]) == (0.16, 0)
    assert forecast([{"a": {"room": 0.9}}]) is None, "one task tells nothing"
    both = [{"a": {"room": 0.9}, "b": {"room": 0.99}}, {"a": {"room": 0.9}, "b": {"room": 0.8}}]
    assert forecast(both).site == "b"


def test_gates_and_bytes_come_from_the_last_checkpoint(tmp_path):
    left(tmp_path, [[0.9], [0.9, 0.9]], method="n-gateon")
    gates = torch.tensor([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])
    state = {"learner": {"model": {"1.context_gate.weight": gates, "1.weight": torch.ones(4, 3)}}}
    checkpoint.save(state, tmp_path / "checkpoint-0002-000000.safetensors")
    run = the_run(tmp_path)
    layer = run["gates"]["layers"][0]
    assert (
        layer["units"] == 4
        and layer["open"] == 0.5
        and run["gates"]["names"] == ["task 0", "task 1"]
    )
    coded = np.frombuffer(base64.b64decode(layer["overlap"]), np.uint8)
    assert coded.tolist() == [250, 83, 83, 250], "a third of 250"
    correlated = np.frombuffer(base64.b64decode(layer["correlation"]), np.uint8)
    assert correlated.tolist() == [250, 125, 125, 250], "they do not correlate"
    assert run["bytes"] == bytes_kept(tmp_path) == 4 * (8 + 12)


def test_a_damaged_checkpoint_costs_only_what_was_in_it(tmp_path):
    inside(left(tmp_path, falling(3)), 3)
    path = tmp_path / "checkpoint-0003-000000.safetensors"
    path.write_bytes(path.read_bytes()[:-40])
    assert the_run(tmp_path)["gates"] is None


def test_similar_contexts_stand_together():
    similarity = np.full((6, 6), 0.1)
    for family in ([0, 3, 5], [1, 2, 4]):
        similarity[np.ix_(family, family)] = 0.9
    order = similarity_order(similarity)
    assert {frozenset(order[:3]), frozenset(order[3:])} == {
        frozenset([0, 3, 5]),
        frozenset([1, 2, 4]),
    }


def test_a_trace_becomes_a_raster(tmp_path):
    found = the_run(inside(left(tmp_path, falling(4)), 4))["raster"]
    trace = Trace.load(tmp_path / TRACE)
    site = found["sites"][0]
    coded = np.frombuffer(base64.b64decode(site["quantities"]["availability"]["data"]), np.uint8)
    shown = coded.reshape(len(site["units"]), len(found["steps"])) / 250
    assert found["steps"] == trace.steps.tolist() and set(site["quantities"]) == set(QUANTITIES)
    assert np.abs(shown - trace.availability["1"].T).max() <= 0.5 / 250
    assert found["starts"] == [0, 20, 40, 60] and found["contexts"][20] == 1


def test_rasters_share_the_room_of_a_page():
    trace = Trace({"1": 512}, {"1": range(512)}, every=1)
    for step in range(900):
        trace.add(step, 0, {"1": np.full((4, 512), np.nan)})
    sizes = [len(json.dumps(raster(trace, shared_by))) * shared_by for shared_by in (1, 10, 60)]
    assert max(sizes) < 1_500_000 and len(raster(trace)["steps"]) == 400
    alone = raster(trace)["sites"][0]["quantities"]["activity"]
    assert set(base64.b64decode(alone["data"])) == {255}, "what was not measured"


def test_inferred_contexts_are_held_against_the_tasks(tmp_path):
    asked = {"detector": {"contexts": "inferred"}}
    seen = {"identities": [0, 1, 0], "contexts": [0, 1, 0], "asked": asked}
    seen["losses"] = [[[step, 0.5, float(step < 2)] for step in range(30)] for _ in range(3)]
    found = the_run(left(tmp_path, falling(3), switches=[[1, 2, 1], [2, 0, 0], [2, 40, 1]], **seen))
    detector = found["detector"]
    assert (detector["real"], detector["missed"], detector["false_alarms"]) == (2, 0, 1)
    assert detector["delay"] == 2.0 and len(detector["switches"]) == 3
    assert detector["losses"] == seen["losses"]
    assert heads(found["findings"])["detector"] == "2 of 2"
    assert the_run(left(tmp_path / "known", falling(3)))["detector"] is None


def test_losses_of_many_tasks_are_thinned(tmp_path):
    losses = [[[step, 0.5, float(step == 1)] for step in range(40)] for _ in range(1000)]
    asked = {"detector": {"contexts": "inferred"}}
    rows = [[None] * k + [0.9] for k in range(999)] + [[0.9] * 1000]
    found = the_run(left(tmp_path, rows, losses=losses, asked=asked))["detector"]["losses"]
    assert len(found) == 1000 and sum(map(len, found)) <= 4000


def test_a_run_at_work_shows_what_it_has_learned(tmp_path):
    unfinished(tmp_path / "ewc-0", falling(3), tasks=8)
    found = facts([tmp_path])
    assert found["methods"] == [] and len(found["runs"][0]["accuracy"]) == 3
    assert "all 3 tasks learned so far" in found["runs"][0]["findings"][0]["says"]
    assert found["waiting"] == ["ewc-0: 3 of 8 tasks learned, 7 batches of the next"]
    left(tmp_path / "si-0", falling(8), method="si")
    found = facts([tmp_path])
    assert [m["name"] for m in found["methods"]] == ["si"], "fewer tasks cannot be compared"
    assert [run["method"] for run in found["runs"]] == ["si", "ewc"]


def test_a_run_in_its_first_task_has_a_page(tmp_path):
    found = facts([unfinished(tmp_path, [], tasks=8)])
    assert found["runs"][0]["findings"][0]["head"] == "begun" and page(found)


def test_hostile_names_are_text(tmp_path):
    left(tmp_path, [[0.9]], method=HOSTILE)
    text = page(facts([tmp_path]))
    assert "<script>alert" not in text and "<img" not in text and "\u2028" not in text
    assert text.count("</script>") == 2 and "\x1b" not in text
    assert held(text)["methods"][0]["name"].startswith("</script><script>alert(1)")


@pytest.mark.parametrize("leave", [lambda p: left(p, [[0.9]]), living, reproduced])
def test_pages_fetch_nothing(leave, tmp_path):
    text = page(facts([leave(tmp_path / "there")]))
    assert not re.search(r"(src|href)\s*=|@import|url\(|fetch\(|XMLHttpRequest", text)
    assert "default-src 'none'" in text.replace("&#x27;", "'") and "connect-src" not in text


def test_a_hundred_tasks_stay_small(tmp_path):
    room = [{"1": {"frozen": 0.1, "room": 1 - k / 200}} for k in range(100)]
    for seed in range(20):
        left(tmp_path / f"ewc-{seed}", falling(100, 0.001), seed=seed, availability=room)
    inside(tmp_path / "ewc-0", 100, units=512, steps=1)
    assert len(page(facts([tmp_path]))) < 2_500_000


def test_numbers_of_another_version_are_marked(tmp_path):
    assert "numerics version 0" in the_run(left(tmp_path, [[0.9]], numerics=0))["note"]


def test_methods_of_one_colour_differ_in_their_dashes(tmp_path):
    for n in range(20):
        left(tmp_path / f"m{n}", [[0.9], [0.5 + n / 100, 0.9]], method=f"method-{n}")
    looks = [(method["colour"], method["dash"]) for method in facts([tmp_path])["methods"]]
    assert len(set(looks)) == 20


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
        (["nowhere", "--watch"], "There is no directory nowhere."),
        (["empty"], "empty: nothing to show here yet. Give the directory of a run"),
        (["alone"], "alone: nothing to show here yet."),
        (["benchmarks"], "is the record of a benchmark or a search"),
        (["broken"], "is not a gateon record, or it is damaged"),
        (["torn"], "is not a gateon record, or it is damaged"),
        (["below"], "is not a gateon record, or it is damaged"),
        (["torn-trace"], "trace.npz is no trace, or a damaged one"),
        (["benchmark"], "is the record of a benchmark or a search, and there is no page of these"),
        (["run", "model"], "run holds runs and model holds a living model: make a page of each."),
        (["table", "run"], "table holds reproduced tables and run holds runs"),
        (["model", "other"], "model and other are living models: make a page of each."),
        (["run", "--watch", "--out", "a.html"], "leave out --out"),
        (["run", "--port", "80"], "add --watch"),
        (["run", "--watch", "--port", "70000"], "--port must be from 1 to 65535, got 70000."),
    ],
)
def test_bad_directories_are_refused_in_a_sentence(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    here = {name: tmp_path / name for name in ("empty", "broken", "torn", "below/run", "benchmark")}
    here["benchmarks/one"] = tmp_path / "benchmarks" / "one"
    for folder in here.values():
        folder.mkdir(parents=True)
    left(tmp_path / "run", [[0.9]])
    whole = (tmp_path / "run" / "record.json").read_text()
    (here["broken"] / "record.json").write_text("{")
    (here["torn"] / "record.json").write_text(whole.replace('"accuracy"', '"acuracy"')[:-400])
    (here["below/run"] / "record.json").write_text(whole[:200])
    for name in ("benchmark", "benchmarks/one"):
        (here[name] / "record.json").write_text('{"name": "scale", "result": []}')
    left(tmp_path / "alone" / "isolated-abc", [[0.9]], method="isolated")
    (left(tmp_path / "torn-trace", [[0.9]]) / TRACE).write_bytes(b"PK\x03\x04")
    for name in ("model", "other"):
        living(tmp_path / name)
    reproduced(tmp_path / "table")
    assert main(["report", *words]) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))
