"""docs/data.md: every example runs and shows what the page says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from gateon.cli import main
from gateon.life import columns

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
FENCE = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_example_of_the_page_runs_as_shown(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    pytest.importorskip("polars")
    monkeypatch.chdir(tmp_path)
    kinds, names = [], {}
    for kind, file, content in FENCE.findall(PAGE.read_text()):
        kinds.append(kind)
        if file:
            Path(file).parent.mkdir(exist_ok=True)
            Path(file).write_text(content)
        elif kind == "console":
            command, _, wanted = content.partition("\n")
            assert main(command.removeprefix("$ gateon ").split()) == 0
            assert capsys.readouterr().out == wanted
        elif kind == "python":
            test = doctest.DocTestParser().get_doctest(content, names, "data.md", str(PAGE), 0)
            runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
            said: list[str] = []
            runner.run(test, out=said.append, clear_globs=False)
            assert not runner.failures, "".join(said)
            names = test.globs
    assert {"csv", "json", "console", "python"} <= set(kinds)


def test_the_page_names_every_name_of_the_rules():
    rules = PAGE.read_text().partition("## Which column is what")[2].partition("## What is held")[0]
    words = set(re.findall(r"\w+", rules))
    named = {*columns.LABEL_NAMES, *columns.TEXT_NAMES, *columns.SPLIT_NAMES, *columns.TASK_NAMES}
    named |= {*columns.PAIRS, *columns.PAIRS.values(), *columns.ID_NAMES}
    assert named <= words, named - words
    docstring = set(re.findall(r"\w+", columns.__doc__))
    assert {*columns.LABEL_NAMES, *columns.TEXT_NAMES, *columns.SPLIT_NAMES} <= docstring


def test_the_program_shows_bad_data_in_a_sentence(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("text,label\na,b,c\n")
    assert main(["data", "check", str(tmp_path / "a.csv")]) == 2
    said = capsys.readouterr()
    assert said.out == "" and re.fullmatch(r"gateon: Line 2 of .*a.csv has 3 cells.*\n", said.err)
    assert main(["data", "check"]) == 2
    assert "Give the path of a file or a folder" in capsys.readouterr().err
    assert main(["data", "where", "--text", "message"]) == 2
    assert "--text is for gateon data check" in capsys.readouterr().err


def test_the_program_takes_columns_and_a_limit(tmp_path, capsys):
    (tmp_path / "a.csv").write_text(
        "one,two,label\nthe red fox,a blue bird,x\nit is so,it was so,y\n"
    )
    words = ["data", "check", str(tmp_path / "a.csv"), "--text", "two", "--second", "one"]
    assert main(words) == 0
    assert "second: column 'one', as you say." in capsys.readouterr().out
    assert main([*words, "--data-limit", "0.00000001"]) == 2
    assert "raise --data-limit" in capsys.readouterr().err
    assert main([*words, "--data-limit", "0"]) == 2
    assert "--data-limit must be a number of gigabytes above 0" in capsys.readouterr().err
