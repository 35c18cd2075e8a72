"""docs/neuroscience.md: every example runs and says what the page says."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "neuroscience.md"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_example_of_the_page_runs_as_shown():
    names: dict[str, object] = {}
    blocks = FENCE.findall(PAGE.read_text())
    assert len(blocks) >= 4
    for block in blocks:
        test = doctest.DocTestParser().get_doctest(block, names, PAGE.name, str(PAGE), 0)
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        said: list[str] = []
        runner.run(test, out=said.append, clear_globs=False)
        assert not runner.failures, "".join(said)
        names = test.globs


def test_the_numbers_of_the_page_are_those_of_its_record():
    record = json.loads((ROOT / "results" / "demo" / "plasticity" / "record.json").read_text())
    found, page = record["result"], PAGE.read_text()
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if " Hz |" in line]
    assert len(lines) == len(record["settings"]["driven"])
    for n, (line, rate) in enumerate(zip(lines, record["settings"]["driven"], strict=True)):
        shown = [f"{after['mean'][n]:.2f}" for after in found["plasticity"]]
        assert line == [f"{rate:.0f} Hz", *shown, recovered(found["recovery"][n])]


def recovered(seconds):
    return "-" if seconds is None else f"{seconds:.0f} s"
