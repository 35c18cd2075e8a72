"""Bad input to a living model: exit code 2, one sentence, and the model stays as it was."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from life_tools import clouds, small, write_csv  # noqa: F401

import gateon
from gateon.cli import main

COMMANDS = ("learn", "predict", "show", "undo", "export")
HEAD = "a,b,c,d,e,label\n"
ROW = "1,2,3,4,5,low\n2,3,4,5,6,high\n"


def text(content):
    return lambda path: path.write_text(content)


def data(content):
    return lambda path: path.write_bytes(content)


def rows(cells, count=60):
    """A table of numbers with these cells in the place of the label."""
    return HEAD + "".join(f"{n},2,3,4,5,{cells(n)}\n" for n in range(count))


def arrays(**named):
    return lambda path: np.savez(path, **named)


# name: the file that is learned, how it is written, words of the sentence
FILES = {
    "no bytes": ("d.csv", text(""), "empty"),
    "blank lines": ("d.csv", text("\n\n  \n"), "empty"),
    "a header only": ("d.csv", text(HEAD), "no rows"),
    "one row": ("d.csv", text(HEAD + "1,2,3,4,5,low\n"), "at least 2"),
    "a cell too many": ("d.csv", text(HEAD + ROW + "1,2,3,4,5,6,low\n"), "Line 4"),
    "a cell too few": ("d.csv", text(HEAD + ROW + "1,2,low\n"), "Line 4"),
    "an open quote": ("d.csv", text(HEAD + ROW + '1,2,3,4,5,"low\n'), "quote"),
    "a column twice": ("d.csv", text("a,a,c,d,e,label\n" + ROW), "'a'"),
    "not UTF-8": ("d.csv", data(b"a,b,label\n1,2,h\xf6he\n"), "UTF-8"),
    "zero bytes": ("d.csv", data(b"a,b\x00,label\n1,2,low\n"), "d.csv"),
    "no labels at all": ("d.csv", text(HEAD + "1,2,3,4,5,\n" * 30), "has a label"),
    "amounts as labels": ("d.csv", text(rows(lambda n: n + n / 100)), "amounts"),
    "a label for every row": ("d.csv", text(rows(lambda n: f"r{n}")), "label"),
    "a label too long": ("d.csv", text(rows(lambda n: "x" * 300)), "more than 200"),
    "infinite numbers": ("d.csv", text(HEAD + ROW + "inf,2,3,4,5,low\n"), "'inf'"),
    "words among numbers": ("d.csv", text(HEAD + ROW + "two,2,3,4,5,low\n"), "'two'"),
    "other columns": ("d.csv", text("p,q,label\n1,2,low\n2,3,high\n" * 2), "d.csv"),
    "texts": (
        "d.csv",
        text("text,label\none long text,low\nmore of the same,high\n"),
        "none of the columns",
    ),
    "no gzip": ("d.csv.gz", data(b"a,b,label\n"), "d.csv.gz"),
    "half a gzip": ("d.csv.gz", data(gzip.compress(HEAD.encode() * 90)[:40]), "d.csv.gz"),
    "broken JSON": ("d.jsonl", text('{"a": 1, "label": "x"}\n{"a":\n'), "line 2"),
    "JSON that is no object": ("d.jsonl", text("[1, 2]\n[3, 4]\n"), "object"),
    "a JSON number": ("d.json", text("42"), "d.json"),
    "no npz": ("d.npz", data(b"PK"), "d.npz"),
    "an npz without y": ("d.npz", arrays(x=np.zeros((4, 5))), "y"),
    "x and y of other lengths": ("d.npz", arrays(x=np.zeros((4, 5)), y=np.zeros(3)), "length"),
    "an npz of objects": ("d.npz", arrays(x=np.array([{}, {}]), y=np.arange(2)), "d.npz"),
    "no Parquet": ("d.parquet", data(b"PAR1"), "d.parquet"),
    "another ending": ("d.xlsx", data(b"PK\x03\x04"), "d.xlsx"),
    "an empty folder": ("d", lambda path: path.mkdir(), "d"),
    "images": ("d.npz", arrays(x=np.zeros((4, 9, 9, 3)), y=[0, 1, 0, 1]), "holds images"),
    "a link to nowhere": ("d.csv", lambda path: path.symlink_to("nowhere"), "d.csv"),
}

# name: the words after gateon, words of the sentence
WORDS = {
    "no such file": (["learn", "m", "away.csv"], "away.csv"),
    "no such label": (["learn", "m", "ok.csv", "--label", "kind"], "no column 'kind'"),
    "no such text": (["learn", "m", "ok.csv", "--text", "words"], "no column 'words'"),
    "no such split": (["learn", "m", "ok.csv", "--split", "part"], "no column 'part'"),
    "a label that is an input": (["learn", "m", "ok.csv", "--text", "label"], "label"),
    "a task without a name": (["learn", "m", "ok.csv", "--task", " "], "name"),
    "an empty name": (["learn", "m", "ok.csv", "--task", ""], "name"),
    "a task of two lines": (["learn", "m", "ok.csv", "--task", "a\nb"], "printable"),
    "no epochs": (["learn", "m", "ok.csv", "--epochs", "0"], "epochs must be"),
    "a seed too late": (["learn", "m", "ok.csv", "--seed", "3"], "chosen when a model begins"),
    "a model too late": (["learn", "m", "ok.csv", "--model", "minilm"], "chosen when a model"),
    "a limit": (["learn", "m", "ok.csv", "--data-limit", "-1"], "--data-limit"),
    "a directory that is a file": (["learn", "ok.csv", "ok.csv"], "ok.csv"),
    "a directory of other things": (["learn", "desk", "ok.csv"], "other files"),
    "no density": (["learn", "n", "ok.csv", "--density", "0"], "density must be"),
    "no model": (["predict", "n", "ok.csv"], "no living model"),
    "no such task": (["predict", "m", "ok.csv", "--task", "t"], "no task 't'"),
    "a text for numbers": (["predict", "m", "a text of mine"], "a text of mine"),
    "standard input": (["predict", "m", "-"], "reads none"),
    "nothing to answer": (["predict", "m", "empty.csv"], "empty"),
    "answers in a folder": (["predict", "m", "ok.csv", "--out", "m"], "m"),
    "answers of no format": (["predict", "m", "ok.csv", "--out", "a.doc"], "names no format"),
    "nothing to show": (["show", "n"], "no living model"),
    "nothing to go back to": (["undo", "m"], "learned once only"),
    "no undo of nothing": (["undo", "n"], "no living model"),
    "an export of no task": (["export", "m", "--task", "t"], "no task 't'"),
    "numbers for transformers": (["export", "m", "--format", "hf"], "texts"),
    "nothing to check": (["data", "check", "away.csv"], "away.csv"),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory, small_module):
    """A directory with a model that has learned once, a file like it and an empty one."""
    folder = tmp_path_factory.mktemp("begun")
    write_csv(folder / "ok.csv", clouds(1, ("low", "high"), rows=40))
    (folder / "empty.csv").write_text("")
    (folder / "desk").mkdir()
    (folder / "desk" / "README.md").write_text("# Mine")
    model = gateon.LivingModel()
    model.learn(folder / "ok.csv", task="heights", epochs=1)
    model.save(folder / "m")
    return folder


@pytest.fixture(scope="module")
def small_module():
    """As `small`, for the fixture that is made once."""
    from life_tools import SMALL

    from gateon.life import settings, training

    with pytest.MonkeyPatch.context() as patch:
        for kind, values in SMALL.items():
            patch.setitem(settings.DEFAULTS, kind, values)
        patch.setattr(training, "FEWEST", 10)
        yield


@pytest.fixture
def living(begun, tmp_path, monkeypatch):
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder):
    """What a directory holds, by name; the lock says nothing."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def refused(capsys, living, words, expected):
    """The program says no in one sentence, and nothing has changed."""
    before = contents(living)
    code, said = main(words), capsys.readouterr()
    assert code == 2 and not said.out
    sentences = [line for line in said.err.splitlines() if line.startswith("gateon: ")]
    assert len(sentences) == 1, said.err
    assert said.err.splitlines()[-1] == sentences[0] and "Traceback" not in said.err
    assert expected in sentences[0]
    assert contents(living) == before


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_refused(living, capsys, name):
    file, write, expected = FILES[name]
    if file.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    write(living / file)
    refused(capsys, living, ["learn", "m", file, "--task", "t"], expected)


@pytest.mark.parametrize("name", WORDS)
def test_bad_words_are_refused(living, capsys, name):
    words, expected = WORDS[name]
    refused(capsys, living, words, expected)


DAMAGE = {
    "no number": (lambda m: (m / "current").write_text("seven\n"), "current"),
    "no pointer": (lambda m: (m / "current").unlink(), "current is missing"),
    "no such version": (lambda m: (m / "current").write_text("7\n"), "is missing"),
    "half a version": (
        lambda m: (m / "versions/000001.safetensors").write_bytes(
            (m / "versions/000001.safetensors").read_bytes()[:5000]
        ),
        "000001.safetensors",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_model_is_left_alone(living, capsys, name, command):
    damage, expected = DAMAGE[name]
    damage(living / "m")
    more = ["ok.csv"] if command in ("learn", "predict") else []
    refused(capsys, living, [command, "m", *more], expected)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_is_not_taken_for_a_living_model(living, capsys, command):
    Path("run").mkdir()
    Path("run/record.json").write_text(json.dumps({}))
    more = ["ok.csv"] if command in ("learn", "predict") else []
    refused(capsys, living, [command, "run", *more], "a run")


def test_python_says_it_too(living):
    model = gateon.load("m")
    assert repr(model) == "<LivingModel of 1 tasks ('heights'), 'm'>"
    for call in (
        lambda: model.learn("ok.csv", task=3),
        lambda: model.predict("ok.csv", task=3),
        lambda: model.predict(np.zeros((2, 5))),
        lambda: model.save("run.csv"),
    ):
        Path("run.csv").write_text("")
        with pytest.raises(ValueError, match=r"[.]$"):
            call()


def test_rows_of_nothing_but_gaps_are_answered(living):
    rows = {name: [np.nan, np.nan] for name in "abcde"}
    assert len(gateon.load("m").predict(rows)) == 2


def test_epochs_are_those_of_one_lesson(living):
    model = gateon.load("m")
    usual = gateon.life.settings.DEFAULTS["features"].epochs
    model.learn("ok.csv", task="heights", epochs=1)
    assert model.about()["settings"]["epochs"] == 1
    model.learn("ok.csv", task="heights")
    assert model.about()["settings"]["epochs"] == usual


def test_the_card_has_the_settings_of_its_kind(living):
    card = Path("m/README.md").read_text()
    assert "hidden = " in card and "model = minilm" not in card and "channels" not in card


def test_images_without_classes_are_answered_and_not_learned(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for n in range(8):
        for colour in ("red", "blue"):
            (tmp_path / "shop" / colour).mkdir(parents=True, exist_ok=True)
            drawn = image.new("RGB", (12 + n, 12), colour)
            drawn.save(tmp_path / "shop" / colour / f"{n}.png")
    model = gateon.LivingModel()
    model.learn(tmp_path / "shop", task="colours")
    assert model.predict(tmp_path / "shop" / "red").labels == ["red"] * 8
    assert model.predict(tmp_path / "shop" / "blue" / "3.png").labels == ["blue"]
    with pytest.raises(ValueError, match="holds images without labels"):
        model.learn(tmp_path / "shop" / "red", task="colours")
    assert model.tasks[0].lessons == 1
