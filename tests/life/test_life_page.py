"""docs/life.md: every example runs and says what the page says."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

from life_tools import small  # noqa: F401

from gateon.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "life.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_every_example_of_the_page_runs_as_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names, commands = {}, []
    for kind, content in FENCE.findall(PAGE.read_text()):
        if kind == "console":
            command, _, wanted = content.partition("\n")
            words = shlex.split(command.removeprefix("$ gateon "))
            assert main(words) == 0, capsys.readouterr().err
            said = capsys.readouterr()
            got = said.err + said.out
            assert doctest.OutputChecker().check_output(wanted, got, LIKE), got
            commands.append(words[0])
        else:
            test = doctest.DocTestParser().get_doctest(content, names, "life.md", str(PAGE), 0)
            failed: list[str] = []
            runner = doctest.DocTestRunner(optionflags=LIKE)
            runner.run(test, out=failed.append, clear_globs=False)
            assert not runner.failures, "".join(failed)
            names = test.globs
    assert {"learn", "predict", "show", "undo", "export"} == set(commands)
