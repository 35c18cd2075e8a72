"""The comparison of methods: settings by stream and scale, native protocols, and the table."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from gateon.methods.registry import METHODS
from gateon.reproduce import Row, Scale, Table, cells, load, read, reproduce
from gateon.reproduce.deviations import deviations
from gateon.reproduce.draw import cost
from gateon.reproduce.show import page
from gateon.runs import legacy
from gateon.runs.specification import Specification

pytestmark = pytest.mark.usefixtures("few_digits")
RECORD = Path(__file__).parents[2] / "results" / "search" / "methods" / "record.json"


def test_every_method_but_the_parts_of_gateon_is_compared():
    mnist = {row.options["method.name"] for row in load("comparison").rows}
    language = {name for name in METHODS if name not in mnist}
    assert mnist >= {
        "n-gateon",
        "p-gateon",
        "ewc",
        "ewc-online",
        "si",
        "xdg",
        "xdg+si",
        "hat",
        "adahat",
        "rmn",
        "dendrites",
    }
    assert mnist >= {"dendrites+si", "ogd", "lwf", "replay", "zoo", "joint", "finetune", "isolated"}
    assert {"gating-only", "obstruction-only"} <= language


@pytest.mark.parametrize("scale", ["quick", "cpu", "paper"])
@pytest.mark.parametrize("name", ["comparison", "comparison-wide", "table-native"])
def test_every_place_can_be_run(name, scale):
    job = load(name)
    made = cells(job, scale)
    assert len(made) == len(job.rows) * len(job.streams)
    for cell in made:
        if cell.row.scales and scale not in cell.row.scales:  # a row of other scales
            assert cell.specification is None
        else:
            cell.specification.make_method()


def test_options_of_a_stream_or_a_scale_go_before_those_of_the_row():
    row = Row(
        "a",
        {"method.name": "ewc", "training.lr": 1.0, "training.steps": 7},
        on={"split-mnist": {"training.lr": 2.0}},
        at={"cpu": {"training.steps": 3}},
        at_on={"cpu": {"split-mnist": {"training.steps": 4}}},
    )
    scales = {name: Scale({"training.steps": 9}) for name in ("cpu", "paper")}
    streams = ("permuted-mnist", "split-mnist")
    table = Table("j", "paper", "J", (row,), {"best": {}}, streams, scales)
    found = {
        (scale, c.stream): (c.specification.training.lr, c.specification.training.steps)
        for scale in scales
        for c in cells(table, scale)
    }
    assert found == {
        ("cpu", "permuted-mnist"): (1.0, 3),
        ("cpu", "split-mnist"): (2.0, 4),
        ("paper", "permuted-mnist"): (1.0, 7),
        ("paper", "split-mnist"): (2.0, 7),
    }
    assert deviations(table, "cpu") == [
        "a: steps 3 (7); in parentheses, at scale paper.",
        "a on split-mnist: steps 4 (7); in parentheses, at scale paper.",
    ]
    assert deviations(table, "paper") == []


def options_of_trial(row):
    """The options that a trial of the record set, by dotted name."""
    flat = {"stream": row["stream"], "method": row["method"], "settings": ""}
    for word in row["settings"].split(", "):
        name, _, value = word.partition(" ")
        flat[name] = json.loads(value) if value[0].isdigit() else value
    return legacy.nested(flat)


def test_the_settings_compared_are_those_of_the_best_trials_in_the_record():
    rows = [row for row in json.loads(RECORD.read_text())["result"] if row["continual"] is not None]
    kin = {"permuted-mnist": ("permuted-mnist", "rotated-mnist", "shuffled-mnist")}
    compared = {
        (c.row.options["method.name"], c.stream): c for c in cells(load("comparison"), "cpu")
    }
    trials = {(row["method"], row["stream"]) for row in rows}
    assert len(trials) == 38
    for method, tried in trials:
        here = [row for row in rows if (row["method"], row["stream"]) == (method, tried)]
        best = options_of_trial(max(here, key=lambda row: row["continual"]))
        fresh = Specification.from_options({"stream.name": tried, "method.name": method} | best)
        for stream in kin.get(tried, (tried,)):
            asked = compared[method, stream].specification
            assert asked.method == fresh.method
            for name in ("training.lr", "training.optimizer", "network.norm"):
                assert asked[name] == fresh[name]


def test_native_protocols_keep_what_the_publications_say():
    native = {
        cell.row.label: cell.specification
        for cell in cells(load("table-native"), "paper")
        if not cell.row.scales
    }
    assert len(native) == 9
    assert native.pop("RMN").network.norm == "context"  # every task has norms of its own
    assert all(
        one.network.norm == "none"
        and one.training.label_smoothing == 0
        and one.training.schedule == "constant"
        for one in native.values()
    )
    assert native["SI"].training.keep_optimizer
    assert not native["XdG + SI"].training.keep_optimizer
    hat = native["HAT"]
    assert (hat.network.heads, hat.network.dropout) == ("per-task", 0.5)
    assert hat.training.optimizer == "plain"
    assert hat["method.steps"] == 859 and hat.training.steps % 859 == 0
    assert not native["Active dendrites"].needs_label() and native["XdG"].needs_label()


@pytest.mark.parametrize(
    ("method", "norm", "heads", "needed"),
    [
        ("ewc", "none", "shared", False),
        ("ewc", "context", "shared", True),
        ("ewc", "none", "per-task", True),
        ("ewc", "batch", "shared", False),
        ("replay", "context", "shared", False),
        ("dendrites", "none", "shared", False),
        ("hat", "none", "shared", True),
    ],
)
def test_a_label_at_test_is_needed_by_the_method_its_heads_or_its_norms(
    method, norm, heads, needed
):
    asked = {"stream.name": "split-mnist", "method.name": method}
    if method != "hat":  # which always has a head for every task
        asked["network.heads"] = heads
    specification = Specification.from_options(asked | {"network.norm": norm})
    assert specification.needs_label() is needed


def an_entry(row, replay=False, heads=False):
    measures = {
        "continual_accuracy": {"mean": 0.9, "spread": 0.0},
        "seconds": {"mean": 5.0, "spread": 0.0},
    }
    needs = {"replay": replay, "heads": heads, "label_at_test": False}
    return {
        "row": row,
        "column": "best",
        "stream": "s",
        "seeds": [0],
        "settings": {"network": {"hidden": [3]}, "method": {"name": "ewc"}},
        "measures": measures,
    } | needs


def a_content(*entries):
    content = {
        "title": "T",
        "scale": "cpu",
        "command": "c",
        "columns": ["best"],
        "streams": ["s"],
        "entries": entries,
    }
    rows = [entry["row"] for entry in entries]
    return content | {
        "measures": ["continual_accuracy"],
        "rows": rows,
        "paper": {},
        "differences": [],
    }


def test_the_table_says_what_a_method_needs():
    text = page(a_content(an_entry("A", replay=True), an_entry("B", heads=True)))
    assert "| replay | own heads | task label at test |" in text
    assert (
        "| A | 90.00 (1) | yes | no | no |" in text and "| B | 90.00 (1) | no | yes | no |" in text
    )
    other = a_content(an_entry("A")) | {
        "printed": "published",
        "paper": {"A": {"s": {"continual_accuracy": 91.5}}},
    }
    assert "| published: continual accuracy (%) |" in page(other)


def test_every_method_has_a_row_of_its_own_in_the_figure_of_cost(tmp_path):
    rows = [f"method {n}" for n in range(18)]
    entries = [an_entry(row, replay=row.endswith("3")) for row in rows]
    written = cost(a_content(*entries), tmp_path / "figure")
    text = written[1].read_text()
    assert [path.suffix for path in written] == [".png", ".svg"]
    assert all(f"<!-- {row} -->" in text for row in rows)
    assert "<!-- stored data of past tasks -->" in text
    heights = [
        float(part.split("translate(")[1].split(")")[0].split(" ")[1])
        for part in text.split("<!-- method ")[1:]
    ]
    assert min(b - a for a, b in pairwise(sorted(heights))) > 8


def test_deviations_are_from_the_row_of_isolated_networks_with_its_own_settings(tmp_path):
    changes = {
        "network.hidden": [12, 12],
        "training.steps": 4,
        "training.batch": 20,
        "stream.tasks": 2,
    }
    rows = ["p-GateON", "Isolated"]
    reproduce(
        load("comparison"),
        "quick",
        out=tmp_path,
        results=tmp_path,
        rows=rows,
        streams=["permuted-mnist"],
        changes=changes,
    )
    entries = {
        e["row"]: e["measures"]
        for e in read(tmp_path / "comparison" / "comparison-quick" / "record.json")["entries"]
    }
    ours, alone = (entries[row]["immediate_accuracy"]["mean"] for row in rows)
    assert entries["p-GateON"]["accuracy_deviation"]["mean"] == pytest.approx(
        (ours - alone) / alone, abs=1e-5
    )
