"""The files of tables: what they may say, and what is said of a mistake in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateon.reproduce import cells, load, names, pages, read_table
from gateon.runs.resolve import options_for
from gateon.streams.registry import entry

ROOT = Path(__file__).parents[2]
WHOLE = """
title = "A table"
streams = ["permuted-mnist", "split-mnist"]
measures = ["continual_accuracy"]
[columns]
best = { method.preset = "best" }
[scales.cpu]
seeds = 2
stream.tasks = 3
method.density = 0.3
on.split-mnist = { training.epochs = 2 }
[scales.paper]
stream.tasks = 10
[[rows]]
label = "EWC"
method = { name = "ewc", strength = 7.0 }
at.cpu = { training.lr = 0.1, on.split-mnist = { training.lr = 0.2 } }
[[rows]]
from = "comparison"
labels = ["n-GateON"]
[[paper]]
source = "Table 1"
streams = ["permuted-mnist", "split-mnist"]
measures = ["continual_accuracy", "forgetting_rate"]
rows = { "EWC" = [96.9, "-", "-", 0.5] }
[[targets]]
says = "it learns"
check = "at least"
streams = ["permuted-mnist"]
wanted = 90.0
"""


def made(folder, text):
    path = folder / "table.toml"
    path.write_text(text)
    return read_table(path)


def test_a_file_says_what_is_run(tmp_path):
    table = made(tmp_path, WHOLE)
    found = {(c.row.label, c.stream): c.specification for c in cells(table, "cpu")}
    ewc, split = found["EWC", "permuted-mnist"], found["EWC", "split-mnist"]
    assert (ewc["method.strength"], ewc["stream.tasks"], ewc.training.lr) == (7.0, 3, 0.1)
    assert (split.training.epochs, split.training.steps, split.training.lr) == (2, None, 0.2)
    # EWC has no density; of n-GateON the row's own, not that of the scale
    assert found["n-GateON", "split-mnist"]["method.density"] == 0.4
    assert table.paper == {
        "EWC": {
            "permuted-mnist": {"continual_accuracy": 96.9},
            "split-mnist": {"forgetting_rate": 0.5},
        }
    }
    assert (table.scales["cpu"].seeds, table.targets[0].wanted) == (2, "90")


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ('title = "A table"', "", "'title' is missing"),
        ("measures =", "mesures =", "The file has no key 'mesures', perhaps 'measures'"),
        ("seeds = 2", 'seeds = "2"', "The scale cpu: seeds must be a whole number, got '2'"),
        ("at.cpu", "att.cpu", "The row 'EWC' has no key 'att'"),
        ("on.split-mnist = { training.epochs", "on.spilt-mnist = { training.epochs", "no stream"),
        ('labels = ["n-GateON"]', 'labels = ["n-GateO"]', "no row 'n-GateO', perhaps 'n-GateON'"),
        ('from = "comparison"', 'from = "comparisn"', "no table 'comparisn', perhaps"),
        ('labels = ["n-GateON"]', 'labels = ["EWC"]', "There are two rows 'EWC'"),
        ('[96.9, "-", "-", 0.5]', "[96.9]", "'EWC' has 1 numbers, expected 4"),
        ('{ "EWC" = [96.9', '{ "EWK" = [96.9', "there is no row 'EWK', perhaps 'EWC'"),
        ("wanted = 90.0", "", "the check 'at least' needs 'wanted'"),
        ("wanted = 90.0", "wanted = 90.0\nleast = 1", "takes no 'least'"),
        ('check = "at least"', 'check = "at lest"', "no check 'at lest', perhaps 'at least'"),
        ('"ewc", strength', '"ewc", strenght', ""),
        ("[columns]", "[columns", "table.toml: "),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence_that_names_it(right, wrong, told, tmp_path):
    assert right in WHOLE
    with pytest.raises(ValueError, match=r"^[^\n]+$") as error:
        cells(made(tmp_path, WHOLE.replace(right, wrong, 1)), "cpu")
    assert told in str(error.value)


@pytest.mark.parametrize("name", names())
def test_every_option_of_a_scale_belongs_to_some_row(name):
    table = load(name)
    for scale, size in table.scales.items():
        asked = {*size.options, *size.narrow, *(o for own in size.on.values() for o in own)}
        known = {"detector.contexts"}
        for cell in cells(table, scale, streams=table.streams):
            if cell.specification is not None:
                known |= set(cell.specification.flat())
        assert asked <= known | {"training.steps"}, f"{name} at {scale}"


@pytest.mark.parametrize("name", names())
def test_every_option_of_a_column_belongs_to_some_row(name):
    table = load(name)
    kind = table.scale("cpu").options.get("network.kind", entry(table.streams[0]).network)
    known = {
        f"{section}.{option}"
        for row in table.rows
        for section, found in options_for(
            table.streams[0], row.options["method.name"], kind
        ).items()
        for option in found
    }
    assert {option for column in table.columns.values() for option in column} <= known


def test_the_pages_are_up_to_date_with_the_records():
    made = pages(ROOT / "results", ROOT / "docs" / "results.md")
    stale = [
        str(path)
        for path, text in made.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not stale, "run gateon reproduce docs"
    assert len(made[ROOT / "docs" / "results.md"].splitlines()) < 250
