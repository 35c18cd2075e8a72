"""Reports: the same figures as picture, table and drawing, readable at 80 columns."""

from __future__ import annotations

import io
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gateon.report import figures, terminal
from gateon.report.drawing import apart
from gateon.report.figures import Panel, compare_figure
from gateon.report.table import markdown, percent, summarise
from gateon.runs.record import Record


def a_record(accuracy, **changes):
    return Record(
        "stream method",
        {},
        {},
        accuracy=accuracy,
        seconds=[{"train": 2.0, "evaluate": 1.0}] * len(accuracy),
        **changes,
    )


def square(tasks):
    return [[(k + j) / (2 * tasks) for j in range(k + 1)] for k in range(tasks)]


def rendered(thing, width=80, color=None):
    console = Console(
        file=io.StringIO(), width=width, force_terminal=color is not None, color_system=color
    )
    console.print(thing)
    return console.file.getvalue()


# The picture


def test_the_picture_has_a_row_a_task_and_a_dot_where_nothing_was_measured():
    picture = terminal.matrix(a_record([[1.0], [None, 0.5], [0.25, 0.125, 0.0]])).plain
    assert picture.splitlines() == [
        "stream method",
        "  after   1   2   3",
        "      1 100",
        "      2   .  50",
        "      3  25  12   0",
    ]


@pytest.mark.parametrize(("tasks", "width"), [(18, 80), (19, 80), (100, 80), (100, 120), (300, 40)])
def test_the_picture_fits_the_terminal_and_keeps_the_first_and_the_last_task(tasks, width):
    record = a_record(square(tasks))
    lines = rendered(terminal.matrix(record, width), width).splitlines()
    shown = [int(word) for word in lines[1].split()[1:]]
    if len(shown) < tasks:
        assert lines.pop() == f"  {len(shown)} of {tasks} tasks; report.html shows all"
    assert len(lines) == 2 + len(shown) and all(len(line) <= width for line in lines)
    assert shown[0] == 1 and shown[-1] == tasks and len(shown) == min(tasks, (width - 8) // 4)
    last = [int(word) for word in lines[-1].split()[1:]]
    assert last == [round(100 * record.accuracy[-1][j - 1]) for j in shown]


# Tables


def test_mean_and_spread_are_over_the_seeds():
    table = summarise({"m": [a_record([[0.5]]), a_record([[0.7]]), a_record([[0.9]])]})
    assert table["m"]["final_accuracy"] == pytest.approx((0.7, 0.2))
    assert table["m"]["seconds"] == (2.0, 0.0)
    assert summarise({"m": [a_record([[0.5]])]})["m"]["final_accuracy"] == (0.5, 0.0)


def test_a_column_that_some_methods_lack_has_a_dash():
    table = summarise({"with": [a_record([[0.5]], isolated=[0.4])], "without": [a_record([[0.5]])]})
    assert "| with | 50.00 | 50.00 | 50.00 | 0.00 | 25.00 | 2 |" in markdown(table, 1)
    assert "| without | 50.00 | 50.00 | 50.00 | 0.00 | - | 2 |" in markdown(table, 1)


def test_nothing_has_a_minus_before_a_zero():
    assert percent((-1e-9, 0.0), 1) == "0.00" and percent((-0.0123, 0.0), 1) == "-1.23"


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_table_fits_80_columns_and_says_what_markdown_says(seeds):
    runs = {
        name: [
            a_record([[0.98], [0.97, 0.96 + n / 1000]], isolated=[0.97, 0.97]) for n in range(seeds)
        ]
        for name in ("n-gateon", "obstruction-only")
    }
    summary = summarise(runs)
    shown = rendered(terminal.table(summary, seeds))
    assert all(len(line.rstrip()) <= 80 for line in shown.splitlines()) and "…" not in shown
    for words in ("obstruction-only", "forgetting", "deviation", "seconds"):
        assert words in shown
    for cell in re.findall(r"-?\d+\.\d\d(?: ± \d+\.\d\d)?", markdown(summary, seeds)):
        assert cell.replace(" ± ", "±") in shown


# Figures


def test_the_figure_shows_every_matrix_and_every_course(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    records = {"alpha": [a_record(square(4))], "beta": [a_record([[1.0], [1.0, 1.0]])]}
    written = compare_figure(records, tmp_path / "compare")
    assert [path.name for path in written] == ["compare.png", "compare.svg"]
    image = np.asarray(pillow.open(written[0]).convert("RGB")).astype(int)
    assert image.shape[1] > 2 * image.shape[0] > 400
    # accuracy 1 in viridis: beta's three cells
    yellow = (np.abs(image - [253, 231, 37]).sum(-1) < 6).sum()
    assert yellow > 3000
    drawn = written[1].read_text()
    scales = 2  # one of the colours of all matrices, one of the courses
    assert drawn.count("<!-- 100 -->") == 3 + scales, "every cell has its number"
    assert drawn.count("<!-- accuracy (%) -->") == scales


@pytest.fixture
def drawn(monkeypatch):
    """What is drawn as lines and as bands."""
    import matplotlib.axes

    found = {"plot": [], "fill_between": []}
    for name, calls in found.items():
        usual = getattr(matplotlib.axes.Axes, name)

        def call(self, *words, usual=usual, calls=calls, **named):
            calls.append((*words, named))
            return usual(self, *words, **named)

        monkeypatch.setattr(matplotlib.axes.Axes, name, call)
    return found


def test_where_not_all_was_measured_no_mean_is_drawn(tmp_path, drawn):
    compare_figure({"m": [a_record([[1.0], [None, 0.5], [0.5, 0.25, 0.75]])]}, tmp_path / "f")
    means = drawn["plot"][0][1]
    assert means[0] == 100 and np.isnan(means[1]) and means[2] == 50


def test_seeds_are_drawn_as_a_mean_and_a_band(tmp_path, drawn):
    seeds = [a_record([[0.9], [0.8, 0.6]]), a_record([[0.7], [0.4, 0.6]])]
    compare_figure({"m": seeds}, tmp_path / "f")
    assert drawn["plot"][0][1] == pytest.approx([80, 60])
    _, low, high, _ = drawn["fill_between"][0]
    assert (high - low) / 2 == pytest.approx([200**0.5, 200**0.5])


# Progress


def test_lines_tell_task_loss_accuracy_rate_and_time_left(capsys):
    lines = terminal.Lines()
    lines.begin("stream method", [50] * 2, 0)
    lines.step(0, 50, 0.25)
    lines.task(0, "first", [0.5], 2.0)
    lines.task(1, "second", [None, 0.75], 2.0)
    lines.end()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "stream method: 2 tasks of 50 steps",
        "  task 1/2 first: loss 0.250, accuracy 50.00, mean of 1 so far 50.00, 2.0 s (25 steps/s), 0 s left",
        "  task 2/2 second: loss 0.250, accuracy 75.00, mean of 1 so far 75.00, 2.0 s (25 steps/s), 0 s left",
    ]


def test_a_run_that_goes_on_after_a_last_step_has_no_loss_to_tell(capsys):
    lines = terminal.Lines()
    lines.begin("stream method", [50] * 4, 100)
    lines.task(1, "second", [0.5, 0.5], 2.0)
    err = capsys.readouterr().err
    assert (
        "4 tasks of 50 steps, resuming at task 3, step 0" in err and "second: accuracy 50.00" in err
    )


def test_time_left_counts_from_where_the_run_went_on(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    lines = terminal.Lines()
    lines.begin("stream method", [50] * 10, 8 * 50)
    now[0] = 7.0
    lines.step(8, 50, 0.1)
    lines.task(8, "ninth", [0.5], 7.0)
    assert "7 s left" in capsys.readouterr().err


def test_names_with_brackets_are_shown_as_they_are():
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    live = terminal.Live(console)
    live.begin("own:/data/[bold]x[/nothing]", [5] * 2, 0)
    live.step(0, 5, 0.5)
    live.task(0, "a", [0.5], 1.0)
    live.step(1, 5, 0.5)
    live.end()
    assert "own:/data/[bold]x[/nothing]: 2 tasks of 5 steps" in console.file.getvalue()


def test_a_bar_is_for_terminals_only():
    assert isinstance(
        terminal.progress_for(Console(file=io.StringIO(), force_terminal=True)), terminal.Live
    )
    assert isinstance(terminal.progress_for(Console(file=io.StringIO())), terminal.Lines)


def test_bars_and_lines_draw_what_they_are_given(tmp_path):
    rows = {"plain": (1.0, 0.9, 1.1), "half": (0.5, 0.4, 0.6)}
    written = figures.bars(rows, "time", tmp_path / "bars")
    accuracy = Panel("first", {"n": [(0.1, 97.0), (1.0, 98.0)]}, "density", "accuracy", log=True)
    time = Panel("second", {"n": [(0.1, 0.2)]}, "density", "time", log=True)
    written += figures.lines([accuracy, time], tmp_path / "lines")
    names = [path.name for path in written]
    assert names == ["bars.png", "bars.svg", "lines.png", "lines.svg"]
    bars, lines = (path.read_text() for path in written[1::2])
    assert all(f"<!-- {word} -->" in bars for word in ("plain", "half", "0.50", "1.00"))
    assert all(f"<!-- {word} -->" in lines for word in ("first", "second", "accuracy", "0.1"))


def test_equal_figures_are_equal_files(tmp_path):
    panel = Panel("p", {"a": [(1, 2.0), (2, 3.0)], "b": [(1, 2.0), (2, 1.0)]}, "x", "y")
    for name in ("one", "two"):
        figures.lines([panel], tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_line_below_others_is_wider_than_they_are(tmp_path, drawn):
    flat = [(1, 0.0), (2, 0.0)]
    panel = Panel("p", {"a": flat, "b": flat, "c": flat, "d": [(1, 0.0), (2, 9.0)]}, "x", "y")
    figures.lines([panel], tmp_path / "lines")
    widths = [call[-1]["linewidth"] for call in drawn["plot"][:4]]
    assert widths[0] > widths[1] > widths[2] == widths[3]


def test_panels_of_one_quantity_have_one_scale(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    asked, usual = [], Axes.set_ylim

    def set_ylim(self, *ends, **named):
        asked.extend([ends] if len(ends) == 2 else [])
        return usual(self, *ends, **named)

    monkeypatch.setattr(Axes, "set_ylim", set_ylim)
    low, high = (Panel(f"{y}", {"n": [(1, y), (2, y + 1)]}, "x", "accuracy") for y in (10.0, 50.0))
    other = Panel("other", {"n": [(1, 0.1), (2, 0.2)]}, "x", "time")
    figures.lines([low, high, other], tmp_path / "lines")
    assert asked[0] == asked[1] and asked[0][0] < 10 and asked[0][1] > 51 and asked[2][1] < 1


def test_tasks_are_marked_where_they_begin(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    marked, usual = [], Axes.axvline
    monkeypatch.setattr(
        Axes, "axvline", lambda self, x, **style: (marked.append(x), usual(self, x, **style))
    )
    course = [(step, 1.0) for step in range(30)]
    written = figures.lines([Panel("p", {"n": course}, "x", "y", [0, 10, 20])], tmp_path / "f")
    assert marked == [10, 20]
    assert all(f"<!-- task {n} -->" in written[1].read_text() for n in (1, 2, 3))


def test_a_place_of_a_curve_is_marked_in_its_colour(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    marked, usual = {}, Axes.axvline

    def axvline(self, x, **style):
        marked[x] = style["color"]
        return usual(self, x, **style)

    monkeypatch.setattr(Axes, "axvline", axvline)
    courses = {name: [(0, 1.0), (9, 2.0)] for name in ("a", "b")}
    panel = Panel("p", courses, "x", "y", marks={"a": 3.0, "b": 6.0})
    figures.lines([panel], tmp_path / "f", colour={"a": "#000000", "b": "#ff0000"})
    assert marked == {3.0: "#000000", 6.0: "#ff0000"}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.2))
def test_names_stand_apart_in_the_order_of_their_curves(wanted, gap):
    places = apart(sorted(wanted), gap)
    assert all(b - a >= gap * (1 - 1e-9) for a, b in pairwise(places))
    far = [b - a for a, b in pairwise(sorted(wanted))]
    if all(space > gap for space in far):
        assert places == pytest.approx(sorted(wanted)), "nothing moves without need"


def test_the_diagonal_takes_no_colours_from_the_rest(tmp_path):
    rows = [[1.0, 0.1], [0.1, 1.0]]
    written = figures.matrices({"a": rows, "b": rows}, "task", "same", tmp_path / "m", across=2)
    drawn = written[1].read_text()
    assert (
        drawn.count("<!-- .10 -->") == 4 and "<!-- 1 -->" in drawn and "<!-- 1.00 -->" not in drawn
    )
    assert drawn.count("<!-- same -->") == 1, "one scale of colours for all"
