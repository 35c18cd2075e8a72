"""Every table and figure at a tiny size: what is run, kept, merged and written."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from gateon import cli
from gateon.reproduce import (
    cells,
    load,
    make,
    names,
    plan,
    read,
    reproduce,
    write_pages,
    write_targets,
)
from gateon.reproduce.deviations import deviations
from gateon.reproduce.measures import SERIES, peak_bytes, reset_peak
from gateon.reproduce.places import folder_of, settings
from gateon.reproduce.show import OLD_NOTE, page
from gateon.runs.identity import NUMERICS
from gateon.runs.record import Record
from gateon.runs.run import Interrupted, Quiet
from gateon.runs.specification import Specification
from gateon.workers.engine import Engine

# Those of texts and of colour images have tests of their own.
DIGITS = {
    name: load(name)
    for name in names()
    if load(name).scales["cpu"].options.get("stream.data") == "mnist"
}
TINY = {
    "network.hidden": [12, 12],
    "training.steps": 4,
    "training.batch": 20,
    "stream.tasks": 3,
}


@pytest.fixture(scope="module", autouse=True)
def memory_as_it_is(few_digits):
    """Collecting garbage takes longer than a tiny run; resetting the peak has its own test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make, "reset_peak", lambda: None)
        yield


def tiny(job):
    return TINY | ({"measuring.curves": 2} if "task_locked" in job.series else {})


def last_column(job):
    """Best with known contexts, or the only one there is."""
    return ["best"] if "best" in job.columns else list(job.columns)[:1]


def make_tiny(job, root, **options):
    chosen = {
        "streams": list(job.streams)[:1],
        "columns": last_column(job),
        "changes": tiny(job),
    } | options
    return reproduce(job, "quick", out=root / "runs", results=root / "results", **chosen)


@pytest.fixture(scope="module")
def everything(tmp_path_factory, few_digits):
    root = tmp_path_factory.mktemp("everything")
    for job in DIGITS.values():
        rows = (
            [row.label for row in job.rows if row.label in OWN]
            if any(row.label in OWN for row in job.rows)
            else []
        )
        make_tiny(job, root, rows=rows)
    return root


# of long tables only these
OWN = {
    "n-GateON",
    "p-GateON",
    "Finetune",
    "Isolated",
    "p-GateON, five times the tasks",
}


# The machinery


@pytest.mark.parametrize("name", DIGITS)
def test_every_job_leaves_a_record_a_table_and_a_figure(name, everything):
    folder, job = everything / "results" / load(name).group / f"{name}-quick", load(name)
    content = read(folder / "record.json")
    assert (
        content["entries"]
        and content["environment"]["time"]
        and content["command"] == f"gateon reproduce {name} --scale quick"
    )
    for entry in content["entries"]:
        assert entry["seeds"] == [0] and entry["settings"]["network"]["hidden"] == [12, 12]
        if not job.look:
            assert entry["made"][0]["time"] and set(entry["series"]) == set(job.series)
            # known contexts have no delay
            sometimes = {
                "accuracy_deviation",
                "delay",
                "recognised",
                "missed",
                "false_alarms",
            }
            sometimes |= {"batches_recognised", "samples_recognised"}
            assert set(job.measures) - sometimes <= set(entry["measures"])
            deviates = "accuracy_deviation" in job.measures and entry["row"] != "Isolated"
            assert ("accuracy_deviation" in entry["measures"]) >= deviates
    text = (folder / "table.md").read_text()
    assert (
        text.startswith(f"# {job.title}")
        and "`gateon reproduce" in text
        and "the paper: mnist" in text
    )
    assert (folder / "figure.svg").exists() == ("(figure.svg)" in text) == bool(job.figure)


def test_jobs_that_need_the_same_run_share_it(everything):
    runs = [
        path
        for path in (everything / "runs" / "quick").iterdir()
        if (path / "record.json").exists()
    ]
    asked = [Record.load(path / "record.json").specification for path in runs]
    assert len(runs) == len({json.dumps(one, sort_keys=True) for one in asked})
    assert all(
        (path / "inside.npz").exists() for path in runs if not path.name.startswith("isolated-")
    )


def test_what_is_finished_is_not_run_again(everything, monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("run again")

    before = read(everything / "results" / "paper" / "figure-epsilon-quick" / "record.json")[
        "entries"
    ]
    monkeypatch.setattr(make, "learn", refuse)
    make_tiny(load("figure-epsilon"), everything)
    assert (
        read(everything / "results" / "paper" / "figure-epsilon-quick" / "record.json")["entries"]
        == before
    )


def test_a_subset_of_rows_leaves_the_others_and_other_settings_do_not(everything, tmp_path):
    job, chosen = (
        load("figure-epsilon"),
        {"columns": ["best"], "changes": TINY, "out": tmp_path / "elsewhere"},
    )
    (tmp_path / "results").symlink_to(everything / "results")
    old = (everything / "results" / "paper" / "figure-epsilon-quick" / "record.json").read_text()
    folder = reproduce(job, "quick", results=tmp_path / "results", rows=["n-GateON 1"], **chosen)
    assert [entry["row"] for entry in read(folder / "record.json")["entries"]] == [
        "n-GateON 0",
        "n-GateON 0.5",
        "n-GateON 1",
    ]
    chosen["changes"] = TINY | {"training.steps": 5}
    folder = reproduce(job, "quick", results=tmp_path / "results", rows=["n-GateON 1"], **chosen)
    assert [entry["row"] for entry in read(folder / "record.json")["entries"]] == ["n-GateON 1"]
    (folder / "record.json").write_text(old)


def test_what_was_finished_is_written_when_the_rest_is_stopped(tmp_path):
    class Stop(Quiet):
        runs = 0

        def begin(self, *words):
            Stop.runs += 1
            if Stop.runs == 2:
                raise Interrupted

    job = load("figure-epsilon")
    with pytest.raises(Interrupted):
        make_tiny(job, tmp_path, progress=Stop)
    content = read(tmp_path / "results" / "paper" / "figure-epsilon-quick" / "record.json")
    assert [entry["row"] for entry in content["entries"]] == ["n-GateON 0"]
    places = plan(job, "quick", out=tmp_path / "runs", columns=["best"], changes=TINY)
    assert [finished for *_, finished in places] == [True, False, False]


def test_a_setting_that_diverges_is_shown_and_the_others_run(tmp_path, monkeypatch):
    learn = make._learn

    def diverge(specification, *rest):
        if specification.method.options["epsilon"] == 0:
            raise FloatingPointError("The loss is nan at step 1.")
        learn(specification, *rest)

    monkeypatch.setattr(make, "_learn", diverge)
    folder = make_tiny(replace(load("figure-epsilon"), figure=""), tmp_path)
    text = (folder / "table.md").read_text()
    assert "n-GateON 0 | - | diverged |" in text and "The loss is nan at step 1." in text
    assert len([e for e in read(folder / "record.json")["entries"] if e["measures"]]) == 2


def test_spread_and_seeds_are_those_of_the_runs(tmp_path):
    job = replace(load("figure-epsilon"), rows=load("figure-epsilon").rows[:1], figure="")
    folder = make_tiny(job, tmp_path, seeds=2)
    entry = read(folder / "record.json")["entries"][0]
    found = entry["measures"]["immediate_accuracy"]
    specification = cells(job, "quick", columns=["best"], changes=TINY)[0].specification
    places = [
        folder_of(specification.with_options({"seed": s}), tmp_path / "runs" / "quick")
        for s in (0, 1)
    ]
    each = [Record.load(place / "record.json").summary["immediate_accuracy"] for place in places]
    assert entry["seeds"] == [0, 1] and found["each"] == pytest.approx(each, abs=1e-6)
    assert (found["mean"], found["spread"]) == pytest.approx(
        (np.mean(each), np.std(each, ddof=1)), abs=1e-6
    )
    assert "(2)" in (folder / "table.md").read_text()


# What is run


def test_a_row_of_another_scale_shows_the_papers_number_and_a_dash(tmp_path):
    job = load("table-1")
    row = replace(next(row for row in job.rows if row.label == "EWC"), scales=("paper",))
    folder = make_tiny(replace(job, rows=(row,)), tmp_path)
    assert "| EWC | 96.9 | - |" in (folder / "table.md").read_text()
    assert read(folder / "record.json")["entries"] == []


def test_the_paper_scale_is_the_papers():
    ten = {
        c.row.label: c.specification
        for c in cells(load("table-1"), "paper", columns=["paper"], streams=["permuted-mnist"])
    }
    n = ten["n-GateON"]
    assert n.network.hidden == (2000, 2000) and n["stream.tasks"] == 10
    assert (n.training.steps, n.training.batch, n.training.lr) == (250, 1000, 5e-3)
    assert (n["method.epsilon"], n["method.rate"]) == (0.0, 0.01)
    hundred = cells(load("table-supplement"), "paper", rows=["p-GateON 0.5"], columns=["best"])[
        0
    ].specification
    assert (hundred.network.hidden, hundred.training.steps) == ((5000,) * 4, 3000)
    assert (hundred["stream.tasks"], hundred.measuring.evaluate) == (100, "all")
    assert (hundred.method.name, hundred["method.epsilon"]) == ("p-gateon", 0.5)


def test_rows_that_cannot_leave_out_units_are_narrow_with_gateon_beside_them():
    here = {
        c.row.label: c.specification.network.hidden
        for c in cells(load("table-ablation"), "cpu", streams=["permuted-mnist"])
    }
    assert here["Vanilla"] == here["Obstruction only"] == here["p-GateON 0, narrow"] == (1000,) * 4
    assert here["p-GateON 0"] == here["Gating only"] == (5000,) * 4
    assert not any("narrow" in c.row.label for c in cells(load("table-ablation"), "paper"))
    assert any(
        "4 x 1000 in the rows Vanilla" in sentence
        for sentence in deviations(load("table-ablation"), "cpu")
    )


def test_every_scale_of_every_table_can_be_specified():
    for job in DIGITS.values():
        for scale in ("quick", "cpu", "paper"):
            for cell in cells(job, scale, streams=job.streams[:1]):
                runs = not cell.row.scales or scale in cell.row.scales
                assert (cell.specification is not None) == runs
        assert job.scales["quick"].options["stream.data"] == "mnist-5k"


def test_equal_runs_have_equal_places_whatever_was_left_to_the_preset(tmp_path):
    spoken = cells(load("table-ablation"), "cpu", rows=["p-GateON 0"], columns=["best"])[
        0
    ].specification
    fed = cells(load("table-supplement"), "cpu", rows=["p-GateON 0"], columns=["best"])[
        0
    ].specification
    assert spoken == fed and folder_of(spoken, tmp_path) == folder_of(fed, tmp_path)
    assert folder_of(spoken.with_options({"seed": 1}), tmp_path) != folder_of(spoken, tmp_path)


def test_another_setting_is_another_run(tmp_path):
    asked = Specification.from_options({"stream.name": "permuted-mnist"})
    other = asked.with_options({"method.rate": 0.123})
    assert settings(other) != settings(asked)
    assert folder_of(other, tmp_path) != folder_of(asked, tmp_path)


def test_entries_with_flat_settings_are_those_of_the_same_places(tmp_path):
    flat = {"stream": "permuted-mnist", "hidden": [2000, 2000], "tasks": 10, "method": "p-gateon"}
    flat |= {"batch": 1000, "data": "mnist", "rate": 0.03, "made": "GateON(...)", "key": "1234"}
    entry = {"row": "p-GateON", "column": "best", "stream": "permuted-mnist", "settings": flat}
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"entries": [entry]}))
    place = cells(load("table-1"), "cpu", rows=["p-GateON"], columns=["best"])[0]
    assert read(path)["entries"][0]["settings"] == settings(place.specification)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"rows": ["EWK"]}, "perhaps 'EWC'"),
        ({"seeds": 0}, "at least 1"),
        ({"columns": ["x"]}, "no column"),
    ],
)
def test_what_does_not_exist_is_named_and_nothing_is_written(words, told, tmp_path):
    with pytest.raises(ValueError, match=told):
        reproduce(
            load("table-1"), "quick", out=tmp_path / "runs", results=tmp_path / "results", **words
        )
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_record_is_named_and_stays(everything):
    folder = everything / "results" / "paper" / "table-hundred-quick"
    whole = (folder / "record.json").read_text()
    (folder / "record.json").write_text(whole[:100])
    with pytest.raises(ValueError, match="move it away"):
        make_tiny(load("table-hundred"), everything)
    assert (folder / "record.json").read_text() == whole[:100]
    (folder / "record.json").write_text(whole)


# What is seen inside


def test_correlations_are_those_of_the_gates_in_the_order_of_the_angles(tmp_path):
    a, b = np.array([1, 1, 0, 0], bool), np.array([0, 1, 1, 0], bool)
    np.savez(tmp_path / "inside.npz", **{"gates 1": np.stack([a, b, a])})
    record = Record(
        "r", {}, {}, tasks=["rotation 90.0", "rotation 10.0", "rotation 5.5"], contexts=[0, 1, 2]
    )
    assert SERIES["correlation"](record, tmp_path).tolist() == [[[1, 0, 1], [0, 1, 0], [1, 0, 1]]]
    record.tasks[2] = "rotation 50.0"
    assert SERIES["correlation"](record, tmp_path).tolist() == [[[1, 0, 0], [0, 1, 1], [0, 1, 1]]]
    with pytest.raises(ValueError, match="were not kept"):
        SERIES["correlation"](record, tmp_path / "other")


def test_selective_units_are_open_in_their_task_and_lose_availability_there(everything):
    found = read(everything / "results" / "paper" / "figure-availability-quick" / "record.json")[
        "entries"
    ][0]["found"][0]
    courses, steps = found["courses"], TINY["training.steps"]
    assert len(found["step"]) == 3 * steps
    gain = np.array(courses["gain"]["selective for task 2"]).reshape(3, steps).mean(axis=1)
    assert gain[1] > max(gain[0], gain[2])
    for course in courses["availability"].values():
        assert (np.diff(course) <= 1e-6).all() and course[
            0
        ] <= 1  # epsilon 0: nothing ever unfreezes


def test_bytes_kept_between_tasks_count_network_and_method(everything):
    content = read(everything / "results" / "comparison" / "comparison-quick" / "record.json")
    size = {e["row"]: e["measures"]["state_bytes"]["mean"] for e in content["entries"]}
    plain = 4 * (784 * 12 + 12 + 12 * 12 + 12 + 12 * 10 + 10)
    # chosen by the search; statistics are kept too
    norms = {e["row"]: e["settings"]["network"]["norm"] for e in content["entries"]}
    assert (
        size["Finetune"] == plain
        if norms["Finetune"] == "none"
        else plain < size["Finetune"] < 1.1 * plain
    )
    assert 3 * plain < size["Isolated"] < 3.3 * plain
    extra = {e["row"]: e["measures"]["extra_bytes"]["mean"] for e in content["entries"]}
    assert extra == {row: kept - size["Finetune"] for row, kept in size.items()}
    assert size["p-GateON"] > 2.5 * plain  # availabilities, running and applied, of every parameter


# The program


def test_the_program_plans_makes_and_collects(everything, capsys, monkeypatch):
    monkeypatch.chdir(everything)
    words = ["--out", "runs", "--results", "results"]
    assert cli.main(["reproduce", "figure-epsilon", "--plan", *words[:2], "--scale", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "figure-epsilon: 3 runs, 0 finished"
    assert (
        cli.main(["reproduce", "targets", *words]) == 0
        and cli.main(["reproduce", "docs", *words[2:], "--page", "d/r.md"]) == 0
    )
    assert "results/paper/targets-quick" in capsys.readouterr().out
    assert (
        cli.main(["reproduce", "tabel-1", *words]) == 2
        and "perhaps 'table-1'" in capsys.readouterr().err
    )


def test_no_record_is_written_from_a_tree_with_changes(everything, capsys, monkeypatch):
    monkeypatch.chdir(everything)
    monkeypatch.setattr("gateon.runs.identity.is_dirty", lambda: True)
    words = ["reproduce", "figure-epsilon", "--columns", "best", "--results", "elsewhere"]
    assert cli.main(words) == 2 and "--allow-dirty" in capsys.readouterr().err
    assert not (everything / "elsewhere").exists()
    assert cli.main([*words, "--plan"]) == 0


def test_every_entry_says_how_it_was_made(everything):
    content = read(everything / "results" / "paper" / "figure-epsilon-quick" / "record.json")
    for entry in content["entries"]:
        assert entry["numerics"] == NUMERICS
        assert entry["made"][0]["seed"] == 0
        assert entry["made"][0]["command"].startswith("gateon run permuted-mnist")


def test_entries_of_other_numerics_are_marked(everything):
    content = read(everything / "results" / "paper" / "figure-epsilon-quick" / "record.json")
    assert OLD_NOTE not in page(content)
    content["entries"][0]["numerics"] = NUMERICS - 1
    assert page(content).count("(1)*") == 1 and OLD_NOTE in page(content)


def test_the_page_has_every_table_and_figure_and_each_link_leads_somewhere(everything):
    import re

    (everything / "results" / "search" / "rate").mkdir(parents=True)
    tried = {
        "command": "python benchmarks/search.py rate",
        "result": [
            {"label": "rate 0.01", "continual": 0.97531},
            {"label": "rate 0.02", "why": "slower"},
        ],
    }
    (everything / "results" / "search" / "rate" / "record.json").write_text(json.dumps(tried))
    written = write_pages(everything / "results", everything / "docs" / "results.md")
    text = written.read_text()
    assert all(f"`{name}`, scale quick" in text for name in DIGITS)
    assert "## Which of the paper's claims hold" in text
    search = (everything / "results" / "search" / "rate" / "table.md").read_text()
    assert "| rate 0.01 | 0.9753 | - |" in search and "| rate 0.02 | - | slower |" in search
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert len(links) > len(DIGITS) and all((written.parent / link).exists() for link in links)
    anchors = re.findall(r"\]\(#([^)]+)\)", text)
    assert len(anchors) == text.count("\n## ")
    assert "not measured" in (write_targets(everything / "results", "cpu") / "table.md").read_text()


def test_without_records_there_is_no_page(tmp_path):
    with pytest.raises(ValueError, match="no record"):
        write_pages(tmp_path, tmp_path / "results.md")


def test_the_peak_of_memory_begins_anew():
    if peak_bytes() is None:
        pytest.skip("this system does not tell how much memory a process had")
    much = torch.ones(1 << 26)
    with_it = peak_bytes()
    del much
    reset_peak()
    assert peak_bytes() < with_it - (1 << 27)


def test_workers_make_a_table_too(tmp_path):
    job = replace(load("figure-epsilon"), rows=load("figure-epsilon").rows[:2], figure="")
    folder = make_tiny(job, tmp_path, engine=Engine(workers=1))
    entries = read(folder / "record.json")["entries"]
    assert len(entries) == 2 and all(entry["measures"] for entry in entries)
