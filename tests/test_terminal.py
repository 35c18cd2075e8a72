"""What a terminal shows: the matrix in colours, whole tables, inferred contexts, help that is true."""

from __future__ import annotations

import io
import re
import shlex

import numpy as np
import pytest
from rich.console import Console

from gateon import cli
from gateon.cli.commands import COMMANDS, EXAMPLES, GROUPS
from gateon.methods.registry import METHODS
from gateon.methods.section import method_defaults
from gateon.report import terminal
from gateon.report.fitting import fitted
from gateon.report.many import ManyLines
from gateon.runs.record import Record
from gateon.streams.data import sources  # noqa: F401

TINY = {
    "run": "--data mnist-5k --hidden 8 --steps 3 --batch 20 --threads 1 --quiet",
    "compare": "--data mnist-5k --hidden 8 --steps 3 --batch 20 --threads 1 --tasks 2 --seeds 1 --quiet",
    "search": "--data mnist-5k --hidden 8 --steps 3 --batch 20 --threads 1 --tasks 2 --trials 2 --quiet",
    "learn": "--epochs 2 --quiet",
    "predict": "--quiet",
    "resume": "--quiet",
}
# What a directory must hold comes first; undo takes the last lesson back.
ORDER = (
    *("run", "compare", "search", "resume", "inspect", "report", "reproduce"),
    *("learn", "predict", "show", "export", "undo", "data", "list", "completion"),
)


def printed(thing, width=80, **options):
    console = Console(file=io.StringIO(), width=width, **options)
    console.print(thing)
    return console.file.getvalue()


def a_record(rows):
    seconds = [{"train": 2.0, "evaluate": 1.0}] * len(rows)
    return Record("stream method", {}, {}, accuracy=rows, seconds=seconds)


# The matrix


def backgrounds(rows):
    """By cell of the accuracy: red and green of its background; None where there is none."""
    text = terminal.matrix(a_record(rows))
    cells = [
        (text.plain[span.start : span.end].strip(), re.search(r"rgb\((\d+),(\d+)", str(span.style)))
        for span in text.spans
        if re.fullmatch(r" *\d+", text.plain[span.start : span.end])
    ]
    return [(cell, tuple(map(int, found.groups())) if found else None) for cell, found in cells]


def test_the_matrix_colours_what_was_forgotten_and_not_what_was_never_known():
    shown = backgrounds([[0.3], [0.3, 0.99], [0.1, 0.4, 0.5]])
    assert [cell for cell, _ in shown] == ["30", "30", "99", "10", "40", "50"]
    learned, kept, also_learned, lost, more_lost, last = (colour for _, colour in shown)
    assert learned is None and also_learned is None and last is None  # just learned
    assert kept[0] < 50 < kept[1]  # green at 30 %, since nothing was lost
    assert lost[0] > lost[1] > 0 and more_lost[0] > more_lost[1]  # red
    assert more_lost[1] < lost[1]


def test_colours_are_for_terminals_that_want_them(monkeypatch):
    record = a_record([[1.0], [0.2, 1.0]])
    assert "\x1b" not in printed(terminal.matrix(record))
    assert "\x1b[1;37;48" in printed(
        terminal.matrix(record), force_terminal=True, color_system="truecolor"
    )
    monkeypatch.setenv("NO_COLOR", "1")
    without = printed(terminal.matrix(record), force_terminal=True, color_system="truecolor")
    assert "48;2" not in without and "38;2" not in without


@pytest.mark.parametrize("colours", [True, False])
def test_the_colours_are_explained_where_there_are_any(capsys, monkeypatch, colours):
    from gateon.cli import printing

    file = io.StringIO()
    system = "truecolor" if colours else None
    printing.legend(Console(file=file, force_terminal=colours, color_system=system))
    assert (
        "points lost since a task was learned:  0  1  5  20  50"
        in re.sub(r"\x1b\[[\d;]*m", "", file.getvalue())
    ) == colours


def test_a_matrix_that_leaves_tasks_out_says_so():
    rows = [[0.5] * (k + 1) for k in range(30)]
    assert terminal.matrix(a_record(rows), 80).plain.endswith(
        "18 of 30 tasks; report.html shows all"
    )
    assert "report.html" not in terminal.matrix(a_record(rows[:18]), 80).plain


# Tables


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_no_column_is_lost_at_any_width(width):
    titles = ["method", *(f"measure-{n}" for n in range(9))]
    rows = [[f"name-{k}", *(f"{k}{n}.00±1.00" for n in range(9))] for k in range(3)]
    lines = printed(fitted(titles, rows, width), width).splitlines()
    assert all(len(line.rstrip()) <= width and "…" not in line for line in lines)
    words = " ".join(lines).split()
    for cell in (*titles[1:], *(cell for row in rows for cell in row[1:])):
        assert words.count(cell) == 1, cell
    assert words.count("method") == words.count("name-2") >= 1
    assert (words.count("method") == 1) == (width == 200)


def test_a_comparison_with_every_figure_and_its_spread_shows_all_at_80_columns():
    names = (
        *("continual_accuracy", "continual_macro_f1", "immediate_accuracy", "final_accuracy"),
        *("forgetting_rate", "accuracy_deviation", "seconds"),
    )
    row = dict.fromkeys(names, (0.9, 0.01))
    text = printed(terminal.table({"obstruction-only": row, "n-gateon": row}, 3, 80), 80)
    for title in (
        "continual",
        "macro-F1",
        "immediate",
        "final",
        "forgetting",
        "deviation",
        "seconds",
    ):
        assert title in text
    assert text.count("90.00±1.00") == 12


def test_names_are_shown_as_they_are():
    text = printed(fitted(["task", "n"], [["[bold]a[/x]\x1b[2J", "1"]], 80))
    assert "[bold]a[/x]\\x1b[2J" in text


# Contexts


def test_contexts_that_are_inferred_are_shown_as_they_are_found(capsys):
    lines, many = terminal.Lines(), ManyLines()
    lines.begin("demo", [5, 5], 0)
    lines.found(1, 2, 1, True)
    many.open(1)
    many.told("run-0", "begin", ("demo", [5, 5], 0))
    many.told("run-0", "found", (1, 3, 0, False))
    err = capsys.readouterr().err
    assert "  task 2/2, step 3: a switch to a new context, 1\n" in err
    assert "run-0: task 2/2, step 4: a switch back to context 0\n" in err
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    live = terminal.Live(console)
    live.begin("demo", [5, 5], 0)
    live.found(1, 2, 1, True)
    live.end()
    assert "step 3: a switch to a new context, 1" in console.file.getvalue()


def test_the_loop_reports_a_switch_when_it_is_found(tmp_path):
    from gateon.runs.progress import Quiet
    from gateon.runs.specified import run_specification
    from specified import specified

    said = []

    class Kept(Quiet):
        def found(self, task, step, context, new):
            said.append((task, step, context, new))

    asked = specified(
        *("permuted-mnist",),
        data="mnist-5k",
        hidden=(60,),
        steps=60,
        batch=100,
        lr=5e-3,
        tasks=2,
        repeats=2,
        threads=1,
        contexts="inferred",
    )
    record = run_specification(asked, tmp_path, progress=Kept())
    assert record.switches and [[*one[:3]] for one in said] == record.switches
    seen = {0}
    for _, _, context, new in said:
        assert new == (context not in seen)
        seen.add(context)


# Help


@pytest.fixture
def help_of(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words):
        with pytest.raises(SystemExit):
            cli.main([*words, "--help"])
        return " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())

    return call


def test_every_command_is_in_one_group_and_has_an_example(help_of):
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    assert EXAMPLES.keys() == COMMANDS.keys() == {*ORDER}
    for name, examples in EXAMPLES.items():
        text = help_of(name)
        for example in examples:
            assert example.split()[:2] == ["gateon", name] and f"For example: {example}" in text
    assert "Experiments: run, compare, search, reproduce." in help_of()


def test_help_of_several_methods_has_the_default_of_each(help_of):
    text = help_of("compare", "split-mnist", "--methods", "n-gateon,p-gateon,ewc")
    of = {name: method_defaults(name, "best", "mlp") for name in ("n-gateon", "p-gateon", "ewc")}
    one, other = of["n-gateon"], of["p-gateon"]
    assert f"(default: n-gateon {one['epsilon']}, p-gateon {other['epsilon']})" in text
    assert f"(default: {of['ewc']['strength']})" in text
    heads = f"(default: n-gateon {one['obstruct_head']}, p-gateon {other['obstruct_head']})"
    assert one["obstruct_head"] == other["obstruct_head"] or heads in text


@pytest.mark.parametrize("method", METHODS)
def test_help_of_a_method_has_its_defaults(help_of, method):
    from gateon.methods.registry import method_options, needs

    stream = "asc" if "language" in needs(method) else "split-mnist"
    kind = "language" if stream == "asc" else "mlp"
    text, options = help_of("run", stream, "--method", method), method_options(method)
    for name, value in method_defaults(method, "best", kind).items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name in options:
            place = text.rindex(f"--method.{name.replace('_', '-')} ")
            assert f"(default: {value})" in text[place + 2 :].partition(" --")[0]


def test_every_example_works_as_it_is_printed(tmp_path, monkeypatch, capsys, few_digits):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GATEON_DATA", str(tmp_path / "no-data"))
    draw = np.random.default_rng(0)
    for name in ("spring.csv", "new.csv"):
        lines = [
            f"{a:.2f},{b:.2f},{'rose' if a > b else 'daisy'}" for a, b in draw.normal(size=(80, 2))
        ]
        (tmp_path / name).write_text("\n".join(["length,width,species", *lines]) + "\n")
    pytest.importorskip("tensorboard")
    for name in ORDER:
        again = 2 if name == "learn" else 1  # undo needs a version to go back to
        for example in EXAMPLES[name] * again:
            words = [*shlex.split(example)[1:], *TINY.get(name, "").split()]
            try:
                code = cli.main(words)
            except SystemExit as left:  # the parser's own
                code = left.code or 0
            assert code == 0, (example, capsys.readouterr().err)
