"""A whole life through the program: learn, learn, killed in the middle, predict, undo, learn again."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from life_tools import clouds, small, write_csv  # noqa: F401

from gateon.cli import main
from gateon.life.store import FORMAT
from gateon.storage import checkpoint

HEIGHTS, COLOURS = ("low", "high"), ("red", "green", "blue")
STUCK = """
import sys, time
from gateon.cli import main
from gateon.life import lesson
def learn(*_):
    print("learning", flush=True)
    time.sleep(60)
lesson.train = learn
main(sys.argv[1:])
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv(Path("january.csv"), clouds(1, HEIGHTS))
    write_csv(Path("february.csv"), clouds(2, COLOURS))
    write_csv(Path("march.csv"), clouds(1, HEIGHTS, draw=1))
    write_csv(Path("new.csv"), clouds(2, COLOURS, rows=30, draw=2))


def rows_of(path, delimiter=","):
    with open(path, newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def lines_of(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def ran(capsys, *words, code=0):
    assert main([str(word) for word in words]) == code
    return capsys.readouterr()


def test_a_whole_life(files, capsys):
    said = ran(capsys, "learn", "m", "january.csv", "--task", "heights", "--label", "label")
    assert said.out.startswith("heights: ") and "held out" in said.err
    assert "kept: heights" in ran(capsys, "learn", "m", "february.csv", "--task", "colours").out

    words = [sys.executable, "-c", STUCK, "learn", "m", "march.csv", "--task", "heights"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ) as child:
        assert child.stdout.readline() == "learning\n"
        busy = ran(capsys, "learn", "m", "march.csv", "--task", "heights", code=2)
        assert "Another process is running in m" in busy.err
        assert "30 answers" in ran(capsys, "predict", "m", "new.csv", "--out", "a.csv").out
        os.kill(child.pid, signal.SIGKILL)
    before = ran(capsys, "predict", "m", "new.csv").out
    assert before == Path("a.csv").read_text()

    rows = rows_of("a.csv")
    assert list(rows[0]) == ["label", "probability", "task", "certainty", "known"]
    truth = [row["label"] for row in rows_of("new.csv")]
    assert np.mean([row["label"] == y for row, y in zip(rows, truth, strict=True)]) > 0.9

    said = ran(capsys, "learn", "m", "march.csv")
    assert "go on with 'heights'" in said.err and said.out.startswith("heights: ")
    shown = json.loads(ran(capsys, "show", "m", "--json").out)
    assert [task["lessons"] for task in shown["tasks"]] == [2, 1]
    assert " version 3." in Path("m/report.html").read_text()
    assert "from version 3 to 2" in ran(capsys, "undo", "m").out
    assert " version 2." in Path("m/report.html").read_text(), "the page goes back too"
    assert ran(capsys, "predict", "m", "new.csv").out == before
    assert ran(capsys, "learn", "m", "march.csv", "--task", "heights", "--quiet").err == ""
    table = ran(capsys, "show", "m").out
    assert "labels of heights: high, low" in table and "like these will fit" in table
    whats = [event["what"] for event in lines_of("m/history.jsonl")]
    assert whats == ["learn", "learn", "learn", "undo", "learn"]


def test_answers_in_every_format(files, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    ran(capsys, "learn", "m", "january.csv", "--task", "heights", "--quiet")
    for name in ("a.csv", "a.tsv", "a.jsonl", "a.parquet"):
        ran(capsys, "predict", "m", "january.csv", "--out", f"out/{name}")
    rows = rows_of("out/a.csv")
    tabs = rows_of("out/a.tsv", "\t")
    lines = lines_of("out/a.jsonl")
    table = parquet.read_table("out/a.parquet").to_pylist()
    assert rows == tabs and lines == table and len(rows) == 120
    assert [row["label"] for row in rows] == [row["label"] for row in lines]
    assert lines[0]["known"] is True and rows[0]["known"] == "yes"


def test_a_name_is_asked_for_on_a_terminal(files, capsys, monkeypatch):
    said = ran(capsys, "learn", "m", "january.csv")
    assert "it is called task-1; --task names it" in said.err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setattr("builtins.input", lambda: "colours")
    assert ran(capsys, "learn", "m", "february.csv").out.startswith("colours: ")


def test_texts_from_the_command_line_and_standard_input(tmp_path, capsys, monkeypatch):
    pytest.importorskip("transformers")
    import io

    rows = [
        f"{text} {n},{label}"
        for n in range(20)
        for text, label in (("great fine nice strong", "good"), ("terrible", "poor"))
    ]
    (tmp_path / "t.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    folder = tmp_path / "m"
    ran(capsys, "learn", folder, tmp_path / "t.csv", "--task", "r", "--model", "tiny")
    one = ran(capsys, "predict", folder, "great fine nice strong 3", "--task", "r").out.splitlines()
    assert one[1].startswith("good,")
    monkeypatch.setattr("sys.stdin", io.StringIO("terrible 4\ngreat fine nice strong 7\n"))
    labels = [line.split(",")[0] for line in ran(capsys, "predict", folder, "-").out.splitlines()]
    assert labels == ["label", "poor", "good"]


BAD = {
    "no model": (["predict", "nothing", "new.csv"], "holds no living model"),
    "nothing to undo": (["undo", "m"], "learned once only"),
    "no such file": (["learn", "m", "april.csv", "--task", "t"], "april.csv"),
    "no such column": (["learn", "m", "march.csv", "--label", "intent"], "no column 'intent'"),
    "no such task": (["predict", "m", "new.csv", "--task", "prices"], "no task 'prices'"),
    "an ending": (["predict", "m", "new.csv", "--out", "a.docx"], "names no format"),
    "begun": (["learn", "m", "march.csv", "--density", "0.5"], "chosen when a model begins"),
    "no density": (["learn", "n", "march.csv", "--density", "2"], "density must be"),
    "no texts": (["predict", "m", "-"], "reads none"),
    "limit": (["learn", "m", "march.csv", "--data-limit", "0"], "--data-limit"),
    "empty": (["learn", "m", "empty.csv"], "empty"),
    "a file": (["learn", "january.csv", "march.csv"], "january.csv"),
}


def test_bad_input_is_one_sentence_and_nothing_is_lost(files, capsys):
    Path("empty.csv").write_text("")
    ran(capsys, "learn", "m", "january.csv", "--task", "heights", "--quiet")
    before = ran(capsys, "predict", "m", "new.csv").out
    for name, (words, expected) in BAD.items():
        said = ran(capsys, *words, code=2)
        sentences = [line for line in said.err.splitlines() if line.startswith("gateon: ")]
        assert len(sentences) == 1 and expected in sentences[0], (name, said.err)
        assert ran(capsys, "predict", "m", "new.csv").out == before
    assert not Path("n").exists()


def test_a_model_of_a_later_version_is_left_alone(files, capsys):
    ran(capsys, "learn", "m", "january.csv", "--task", "heights", "--quiet")
    (path,) = Path("m/versions").iterdir()
    state = checkpoint.load(path)
    state["about"]["format"] = FORMAT + 1
    checkpoint.save(state, path)
    for words in (["learn", "m", "march.csv"], ["predict", "m", "new.csv"], ["show", "m"]):
        assert "made by a newer gateon" in ran(capsys, *words, code=2).err


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_model_answers_and_does_not_learn(files, capsys):
    ran(capsys, "learn", "m", "january.csv", "--task", "heights", "--quiet")
    Path("m").chmod(0o500)
    try:
        assert ran(capsys, "predict", "m", "new.csv").out
        assert "cannot be written" in ran(capsys, "learn", "m", "march.csv", code=2).err
    finally:
        Path("m").chmod(0o700)
