"""The tables of language models: what is run at which scale, and what is made of it."""

from __future__ import annotations

import pytest

from gateon.networks import pretrained
from gateon.reproduce import cells, load, plan, read, reproduce
from gateon.reproduce.deviations import deviations
from gateon.reproduce.make import isolated_of
from gateon.reproduce.places import folder_of, settings

TABLE, TRANSFER = load("table-language"), load("table-language-transfer")
TEXTS = ("asc", "dsc", "news20")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Both tables at a tiny size, on texts made by a rule and a model made on the spot."""
    root = tmp_path_factory.mktemp("language")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        patch.setenv("GATEON_DATA", str(root / "data"))
        changes = {
            "training.epochs": 1,
            "stream.tasks": 2,
            "stream.limit": 40,
            "training.threads": 1,
        }
        chosen = {"out": root / "runs", "results": root / "results", "changes": changes}
        reproduce(
            TABLE, "quick", rows=["n-GateON", "CTR", "Naive (finetune)", "Isolated"], **chosen
        )
        reproduce(TRANSFER, "quick", rows=["n-GateON"], **chosen)
    return root


def test_the_tables_hold_accuracy_and_macro_f1_beside_the_papers(made):
    content = read(made / "results" / "paper" / "table-language-quick" / "record.json")
    assert {entry["row"] for entry in content["entries"]} == {
        "n-GateON",
        "CTR",
        "Naive (finetune)",
        "Isolated",
    }
    assert {entry["stream"] for entry in content["entries"]} == {"made-reviews"}
    for entry in content["entries"]:
        assert set(TABLE.measures) <= set(entry["measures"])
    heads = {entry["row"]: entry["heads"] for entry in content["entries"]}
    assert heads["CTR"] and not heads["n-GateON"]
    page = (made / "results" / "paper" / "table-language-quick" / "table.md").read_text()
    assert "the paper: continual macro-F1 (%)" in page and "| LAMOL | 88.9 | - | 80.6 | - |" in page
    assert "| n-GateON | 89.3 | - | 84.1 | - |" in page


def test_transfer_is_against_networks_apart_in_accuracy_and_macro_f1(made):
    entry = read(made / "results" / "paper" / "table-language-transfer-quick" / "record.json")[
        "entries"
    ][0]
    table = read(made / "results" / "paper" / "table-language-quick" / "record.json")["entries"]
    assert set(TRANSFER.measures) <= set(entry["measures"])
    alone = next(e["measures"] for e in table if e["row"] == "Isolated")
    ours = next(e["measures"] for e in table if e["row"] == "n-GateON")
    for deviation, of in (
        ("accuracy_deviation", "immediate_accuracy"),
        ("macro_f1_deviation", "immediate_macro_f1"),
    ):
        wanted = ours[of]["mean"] / alone[of]["mean"] - 1
        assert entry["measures"][deviation]["mean"] == pytest.approx(wanted, abs=1e-5)


def test_a_plan_needs_neither_model_nor_data(tmp_path, monkeypatch):
    def refuse(*words):
        raise AssertionError("asked for a model")

    for name in ("find", "config", "tokenizer"):
        monkeypatch.setattr(pretrained, name, refuse)
    monkeypatch.setenv("GATEON_DATA", str(tmp_path / "nowhere"))
    for scale in ("quick", "cpu", "paper"):
        assert not any(finished for *_, finished in plan(TABLE, scale, out=tmp_path))


def test_what_decides_a_run_decides_its_place(tmp_path):
    cell = cells(TABLE, "cpu", rows=["n-GateON"], streams=["asc"])[0].specification
    changed = (
        {},
        {"training.lr": 1e-3},
        {"training.epochs": 9},
        {"stream.limit": 5},
        {"network.model": "tiny"},
        {"training.warm_up": 0.0},
        {"training.class_weights": True},
        {"method.rate": 0.1},
    )
    asked = [
        cells(TABLE, "cpu", rows=["n-GateON"], streams=["asc"], changes=changes)[0].specification
        for changes in changed
    ]
    places = {folder_of(one, tmp_path) for one in asked}
    assert len(places) == 8 and folder_of(cell, tmp_path) in places
    assert settings(cell)["network"]["kind"] == "language" and cell.make_method().encoder


def test_the_scales_are_what_they_say():
    here = {(c.row.label, c.stream): c.specification for c in cells(TABLE, "cpu")}
    assert {stream for _, stream in here} == set(TEXTS) and here["LAMOL", "asc"] is None
    asc = here["n-GateON", "asc"]
    assert (asc.network.model, asc["stream.tasks"]) == ("minilm", None)
    training = asc.training
    assert (training.batch, training.optimizer) == (16, "adamw")
    assert (training.schedule, training.warm_up) == ("linear", 0.1)
    assert here["CTR", "dsc"]["method.width"] == 200
    assert here["CTR", "dsc"].network.heads == "per-task"
    printed = {(c.row.label, c.stream): c.specification for c in cells(TABLE, "paper")}
    assert printed["n-GateON", "dsc"].network.model == "bert-base-uncased"
    assert printed["n-GateON", "dsc"].training.lr == 5e-5
    assert {s: printed["CTR", s].training.epochs for s in TEXTS} == {
        "asc": 30,
        "dsc": 20,
        "news20": 10,
    }
    assert printed["CTR", "asc"]["method.width"] == 2000
    assert printed["LAMOL", "asc"].network.model == "gpt2"
    assert printed["n-GateON", "news20"]["stream.keep_headers"]
    assert not here["n-GateON", "news20"]["stream.keep_headers"]
    said = deviations(TABLE, "cpu")
    assert f"asc: limit {asc['stream.limit']} (the paper: none)." in said
    assert "model: minilm (the paper: bert-base-uncased)." in said
    assert "EWC: lr 0.0001 (5e-05); in parentheses, at scale paper." in said


@pytest.mark.parametrize("stream", TEXTS)
def test_networks_apart_are_those_of_the_row_isolated_and_have_their_own_rate(stream, tmp_path):
    ours, alone = (
        cells(TABLE, "cpu", rows=[row], streams=[stream])[0].specification
        for row in ("n-GateON", "Isolated")
    )
    ewc = cells(TABLE, "cpu", rows=["EWC"], streams=[stream])[0].specification
    assert alone.training.lr == ewc.training.lr < ours.training.lr
    apart = isolated_of(ours, TABLE.scale("cpu"))
    assert folder_of(apart, tmp_path) == folder_of(alone, tmp_path)
    assert f"Networks that learn one task each have lr {alone.training.lr}." in deviations(
        TRANSFER, "cpu"
    )
    assert not any("learn one task each" in said for said in deviations(TABLE, "cpu"))


def test_every_row_of_the_paper_has_one_of_ours():
    for table in (TABLE, TRANSFER):
        assert set(table.paper) <= {row.printed_as or row.label for row in table.rows}
        assert all(set(row) == set(TEXTS) for row in table.paper.values())


def found(**rows):
    """Records of both tables, with one continual accuracy for every row on all streams."""

    def entry(row, stream, accuracy):
        measures = {
            "continual_accuracy": accuracy,
            "forgetting_rate": 0.001,
            "accuracy_deviation": 0.01,
        }
        measures = {name: {"mean": value, "spread": 0.0} for name, value in measures.items()}
        return {
            "row": row,
            "column": "best",
            "stream": stream,
            "seeds": [0],
            "measures": measures,
            "settings": {"network": {}},
        }

    entries = [entry(row, stream, accuracy) for row, accuracy in rows.items() for stream in TEXTS]
    return {
        name: {"rows": list(rows), "entries": entries}
        for name in ("table-language", "table-language-transfer")
    }


OURS = [
    (table.name, target)
    for table in (TABLE, TRANSFER)
    for target in table.targets
    if target.says.split(":")[0] in TEXTS
]


def verdicts(found):
    return [target.check(found.get(name)).holds for name, target in OURS]


def test_the_targets_are_met_and_missed_by_what_records_say():
    assert verdicts({}) == [None] * 10
    good = found(
        **{
            "n-GateON": 0.9,
            "MTL (joint)": 0.92,
            "Naive (finetune)": 0.6,
            "Naive, a head for every task": 0.5,
        }
    )
    assert verdicts(good) == [True] * 10
    bad = found(
        **{
            "n-GateON": 0.8,
            "MTL (joint)": 0.92,
            "Naive (finetune)": 0.75,
            "Naive, a head for every task": 0.75,
        }
    )
    assert verdicts(bad) == [False] * 6 + [True] * 4


def test_the_best_two_are_those_of_the_numbers():
    claim = next(claim for claim in TABLE.claims if "best or second best" in claim.says)
    rows = {"MTL (joint)": 0.99, "CTR": 0.9, "B-CL": 0.8}
    assert claim.check(found(**rows, **{"n-GateON": 0.85})["table-language"]).holds is True
    assert claim.check(found(**rows, **{"n-GateON": 0.7})["table-language"]).holds is False
    assert claim.check(None).holds is None
