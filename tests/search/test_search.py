"""A search for settings: what is read, tried, ended early, gone on with, and left as a record."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gateon
from gateon.runs.stopping import Interrupted
from gateon.search.asked import Search
from gateon.search.ranges import Choice, Span, edges
from gateon.search.search import search_settings
from gateon.search.study import Trials
from gateon.streams.base import Stream
from gateon.workers.engine import Engine
from gateon.workers.plan import Piece
from specified import specified

pytest.importorskip("optuna", reason="Optuna is not installed: pip install 'gateon[search]'")


def small(**options):
    tiny = {"data": "mnist-5k", "tasks": 2, "steps": 4, "batch": 20, "hidden": (8,), "threads": 1}
    return specified("permuted-mnist", **{**tiny, **options})


@pytest.mark.parametrize(
    ("over", "told"),
    [
        ("", "Say what is searched"),
        ("method.rate", "--over lists what is searched"),
        ("method.rate=", "--over lists what is searched"),
        ("method.rat=0.1..0.2", "no option 'method.rat', perhaps 'method.rate'"),
        ("method.strength=1..2", "no option 'method.strength'"),
        ("method.rate=0.3..0.1", "the first number must be below the second"),
        ("method.rate=0..0.1:log", "a logarithm needs numbers above 0"),
        ("method.rate=0.1", "at least two different values"),
        ("method.rate=0.1|0.1", "at least two different values"),
        ("method.rate=0.1..0.2:lin", "must be LOW..HIGH"),
        ("training.batch=0..100", "--training.batch must be at least 1, got 0"),
        ("training.optimizer=adam|adame", "There is no optimizer 'adame', perhaps 'adam'"),
        ("training.lr=0.1..0.2,training.lr=1..2", "names training.lr twice"),
        ("measuring.part=test|validation", "not how it is measured"),
        ("method.name=ewc|sii", "There is no method 'sii', perhaps 'si'"),
    ],
)
def test_a_wrong_over_is_told_in_a_sentence(over, told):
    with pytest.raises(ValueError, match="^" + r".*" + told.replace(".", r"\.")):
        Search.of(small(), over)


def test_a_grid_needs_values():
    with pytest.raises(ValueError, match="--sampler grid needs values"):
        Search.of(small(), "training.lr=0.1..0.2", sampler="grid")


def test_ranges_of_every_kind():
    search = Search.of(
        small(),
        "training.lr=1e-4..1e-1:log,training.batch=10..20,network.hidden=8 8|16,"
        "training.keep_optimizer=true|false",
    )
    assert search.over == {
        "training.lr": Span(1e-4, 1e-1, log=True, whole=False),
        "training.batch": Span(10, 20, log=False, whole=True),
        "network.hidden": Choice(("8 8", "16")),
        "training.keep_optimizer": Choice(("true", "false")),
    }
    run = search.specification({"network.hidden": "8 8", "training.keep_optimizer": "true"})
    assert run.network.hidden == (8, 8) and run.training.keep_optimizer is True
    touched = edges(search.over, {"training.lr": 0.0999, "training.batch": 11})
    assert touched == {"training.lr": "high"}


def test_options_of_a_method_are_for_that_method(tmp_path):
    search = Search.of(
        small(), "method.name=ewc|si,method.strength=1..9:log", {"method.labels": "sampled"}
    )
    content = search_settings(search, 6, tmp_path)
    by = {trial["settings"]["method.name"] for trial in content["trials"]}
    assert by == {"ewc", "si"}
    ewc = search.specification({"method.name": "ewc", "method.strength": 2.0})
    assert (ewc["method.strength"], ewc["method.labels"]) == (2.0, "sampled")
    assert search.specification({"method.name": "si"}).get("method.labels") is None


def test_test_data_are_never_looked_at(tmp_path, monkeypatch):
    split = Stream.split

    def guarded(self, task, part):
        assert part == "validation"
        return split(self, task, part)

    monkeypatch.setattr(Stream, "split", guarded)
    search = Search.of(small(), "method.density=0.2..0.8")
    content = search_settings(search, 2, tmp_path, command="gateon search this")
    assert content["part"] == "validation" and content["trials"][0]["value"] > 0
    held = json.loads((tmp_path / "search.json").read_text())
    assert held["command"] == "gateon search this"
    assert held["best"]["run"].startswith("gateon run permuted-mnist --method n-gateon")
    assert "measuring" not in held["best"]["run"]
    page = (tmp_path / "search.md").read_text().splitlines()
    assert page[0] == "| trial | continual accuracy | method.density |" and len(page) > 5


class StopsAt:
    """Progress that ends the program in the middle of some trial."""

    def __init__(self, runs):
        self.runs = runs

    def begin(self, name, steps, at):
        self.runs[0] -= 1

    def step(self, task, step, loss):
        if self.runs[0] < 0:
            raise Interrupted

    def task(self, *told):
        pass

    def end(self):
        pass


def without_times(content):
    kept = {name: value for name, value in content.items() if name != "environment"}
    return kept | {"trials": [trial | {"seconds": 0} for trial in content["trials"]]}


def test_a_search_that_was_stopped_goes_on_as_if_it_had_not(tmp_path):
    search = Search.of(small(), "method.density=0.2..0.8,training.lr=1e-3..1e-1:log")
    whole = search_settings(search, 12, tmp_path / "whole")
    left = [7]
    with pytest.raises(Interrupted):
        search_settings(search, 12, tmp_path / "parts", progress=lambda: StopsAt(left))
    begun = json.loads((tmp_path / "parts" / "search.json").read_text())
    assert [trial["state"] for trial in begun["trials"]].count("running") == 1
    assert len(begun["trials"]) == 8
    parts = search_settings(search, 12, tmp_path / "parts")
    assert without_times(parts) == without_times(whole)
    more = search_settings(search, 13, tmp_path / "parts")
    assert len(more["trials"]) == 13
    other = Search.of(small(), "method.density=0.2..0.7")
    with pytest.raises(ValueError, match="holds another search, with another over"):
        search_settings(other, 12, tmp_path / "parts")


def test_poor_trials_are_ended_early(tmp_path):
    plan = Trials(Search.of(small(), "method.density=0.2..0.8"), 7, tmp_path)
    for number in range(5):
        piece = plan.next()
        assert all(plan.heard(piece, "task", (k, "", [0.5 + number / 100], 1.0)) for k in (0, 1))
        plan.finished(piece, (0.5, {"continual_accuracy": 0.5}))
    good, poor = plan.next(), plan.next()
    assert good.name == "trial-0005" and plan.next() is None
    assert plan.heard(good, "task", (0, "", [0.9], 1.0))
    assert plan.heard(poor, "step", (0, 1, 2.0))
    assert not plan.heard(poor, "task", (0, "", [0.1], 1.0))
    assert not plan.heard(poor, "step", (1, 1, 2.0))  # until its worker has heard of it
    plan.finished(good, "The loss is not finite.")
    plan.finished(poor, None)
    by = {trial["number"]: trial for trial in plan.found()}
    assert by[5]["state"] == "fail" and by[5]["failed"] == "The loss is not finite."
    assert by[6]["state"] == "pruned" and by[6]["accuracies"] == [0.1]


def test_a_grid_is_gone_through_once_by_workers(tmp_path):
    over = "network.hidden=8|16,training.batch=10|20"
    search = Search.of(small(), over, sampler="grid", prune="none")
    content = search_settings(search, 50, tmp_path, engine=Engine(workers=1))
    tried = sorted(tuple(trial["settings"].values()) for trial in content["trials"])
    assert [trial["number"] for trial in sorted(content["trials"], key=lambda t: t["number"])] == [
        *range(4)
    ]
    assert tried == [("16", "10"), ("16", "20"), ("8", "10"), ("8", "20")]
    assert all(trial["state"] == "complete" for trial in content["trials"])


def test_a_piece_that_is_no_trial_any_more(tmp_path):
    """A worker may be done before it hears that its trial was ended early."""
    plan = Trials(Search.of(small(), "method.density=0.2..0.8"), 1, tmp_path)
    piece = plan.next()
    assert isinstance(piece, Piece)
    plan.pruned.add(piece.name)
    plan.finished(piece, (0.5, {}))
    assert plan.found()[0]["state"] == "pruned"


BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.mark.parametrize(
    "file", sorted((BENCHMARKS / "search").glob("*.toml")), ids=lambda f: f.stem
)
def test_the_projects_own_searches_are_of_validation_data(file, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    searches = importlib.import_module("search").searches
    asked = tomllib.loads(file.read_text())
    found = list(searches(asked))
    assert len(found) == len(asked["streams"]) * len(asked["methods"])
    for stream, method, search in found:
        assert (search.base.stream.name, search.base.method.name) == (stream, method)
        assert search.base.measuring.part == "validation"
        assert search.base["stream.tasks"] <= 5 and "training.lr" in search.over


def test_a_file_of_searches_is_carried_out(tmp_path):
    (tmp_path / "tiny.toml").write_text(
        'streams = ["permuted-mnist"]\ntrials = 9\n[all]\n"stream.data" = "mnist-5k"\n'
        '"stream.tasks" = 2\n"training.steps" = 3\n"network.hidden" = [8]\n'
        '"training.lr" = "0.001..0.1:log"\n[methods]\new'
        'c = {"method.strength" = "1..9"}\nsi = {}\n'
    )
    words = [sys.executable, BENCHMARKS / "search.py", "tiny.toml", "--trials", "2", "--dry"]
    path = os.pathsep.join(
        [str(Path(gateon.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for method in ("ewc", "si"):
        kept = tmp_path / "runs" / "search" / "tiny" / "permuted-mnist" / method / "search.json"
        content = json.loads(kept.read_text())
        assert len(content["trials"]) == 2 and content["part"] == "validation"
        assert f"permuted-mnist, {method}: {content['best']['value']}" in done.stdout
