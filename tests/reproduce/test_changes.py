"""Other options for every run of a table: taken from the words, or refused in a sentence."""

from __future__ import annotations

import numpy as np
import pytest

from gateon import cli
from gateon.cli.given import given_options
from gateon.options.declared import Option
from gateon.reproduce import cells, changed, load, names, options_of, read
from gateon.reproduce.show import page

TINY = ["--hidden", "12", "12", "--steps=6", "--batch", "20"]


@pytest.mark.usefixtures("few_digits")
def test_single_units_freeze_and_unfreeze_where_epsilon_is_given(tmp_path, capsys):
    words = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    rate = ["--rate", "0.2", "--allow-dirty", "--quiet"]
    asked = ["reproduce", "figure-availability", "--epsilon", "0.5", *TINY, *rate, *words]
    assert cli.main(asked) == 0
    (folder,) = (tmp_path / "results" / "paper").iterdir()
    assert folder.name.startswith("figure-availability-epsilon-0.5-hidden-12-12-steps-6")
    content = read(folder / "record.json")
    assert content["command"].startswith(
        "gateon reproduce figure-availability --method.epsilon 0.5"
    )
    assert content["entries"][0]["settings"]["method"]["epsilon"] == 0.5
    courses = content["entries"][0]["found"][0]["units"]["availability"]
    steps = 6
    for task, course in enumerate(np.array(list(courses.values()))[:2]):
        before, after = course[(task + 1) * steps - 1], course[(task + 2) * steps - 1]
        assert before < after <= 1, "not relevant in the next task, it unfreezes"
    assert (folder / "figure.svg").exists() and (folder / "figure.png").exists()
    assert "In every run: epsilon 0.5" in page(content)


def test_the_options_go_before_all_others_and_the_labels_say_so():
    table, values = changed(load("figure-availability"), {"method.epsilon": 1})
    assert values == {"method.epsilon": 1.0} and table.title.endswith("; with epsilon 1.0")
    assert [row.label for row in table.rows] == ["n-gateon: epsilon 1.0"]
    assert not table.paper and not table.claims
    asked = cells(table, "cpu", changes=values)[0].specification
    assert asked["method.epsilon"] == 1.0 and asked["training.steps"] == 250
    assert changed(load("table-1"), {}) == (load("table-1"), {})


@pytest.mark.parametrize("name", list(names()))
def test_every_table_knows_the_options_of_its_runs(name):
    known = options_of(load(name))
    assert {"training.steps", "method.preset"} <= known.keys()
    assert not {"stream.name", "method.name"} & known.keys()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["figure-epsilon", "--epsilon", "1"],
            "rows of figure-epsilon differ in method.epsilon (0.0",
        ),
        (["figure-availability", "--method.preset", "best"], "The column 'paper' of figure-av"),
        (["figure-availability", "--epsilo", "1"], "have the option --epsilo, perhaps '--epsilon'"),
        (["figure-availability", "--epsilon"], "--epsilon needs a value."),
        (["figure-availability", "--epsilon", "--plan"], "--epsilon needs a value."),
        (["figure-availability", "--epsilon", "big"], "must be a finite number, got 'big'"),
        (["figure-availability", "--method.name", "ewc"], "have the option --method.name"),
        (["figure-detection", "--strength", "1"], "have the option --strength"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(words, told, capsys):
    assert cli.main(["reproduce", *words]) == 2
    assert told in capsys.readouterr().err


def test_words_of_all_kinds_are_read():
    known = {
        "t.steps": Option("steps", int | None, 1, ""),
        "n.hidden": Option("hidden", tuple[int, ...], (1,), ""),
        "m.rate": Option("rate", float, 0.0, ""),
        "t.rate": Option("rate", float, 0.0, ""),
        "t.keep": Option("keep", bool, False, ""),
    }
    words = [
        "a",
        "--hidden",
        "3",
        "4",
        "--t.rate=0.5",
        "--t.no-keep",
        "--rows",
        "b",
        "--steps",
        "none",
    ]
    given, rest = given_options(words, ["--rows"], known)
    assert given == {"n.hidden": (3, 4), "t.rate": 0.5, "t.keep": False, "t.steps": None}
    assert rest == ["a", "--rows", "b"]
    with pytest.raises(ValueError, match="have the option --rate"):
        given_options(["--rate", "1"], [], known)  # of which section?
