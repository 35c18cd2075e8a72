"""What objects show of themselves in a notebook, and figures and progress there."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import gateon
from gateon.report.progress import InNotebook
from gateon.runs.compare import Comparison
from gateon.runs.record import Record
from gateon.workers.comparison import compare
from specified import specified

HOSTILE = "<script>alert(1)</script> & <b>"


class Reader(HTMLParser):
    """Checks that every element is closed, and collects the rows of tables."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.text = [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        assert tag in ("div", "b", "table", "thead", "tbody", "tr", "th", "td", "progress"), tag
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        assert not any("#" in (value or "") for _, value in attributes)  # no colour of its own

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def a_record(accuracy=((1.0,), (0.7, 0.9)), name="demo", **changes):
    rows = [list(row) for row in accuracy]
    seconds = [{"train": 2.0, "evaluate": 1.0}] * len(rows)
    room = [{"first": {"frozen": 0.1 * k, "room": 1 - 0.2 * k}} for k in range(len(rows))]
    return Record(name, {}, {}, accuracy=rows, seconds=seconds, availability=room, **changes)


def test_a_record_is_its_matrix_and_figures():
    record = a_record(name=HOSTILE)
    read = Reader(record._repr_html_())
    assert (
        HOSTILE in read.text and "2 tasks, test data" in read.text and "4 s to train" in read.text
    )
    assert read.rows[-3:] == [["after task", "1", "2"], ["1", "100.0"], ["2", "70.0", "90.0"]]
    assert read.rows[0] == ["", "continual", "immediate", "final", "forgetting"]
    assert read.rows[1] == ["percent", "87.50", "95.00", "80.00", "7.50"]
    # what was forgotten is shaded, the rest is not
    shaded = re.findall(r"background:rgba\(213,94,0,(0\.\d\d)\)\">([\d.]+)<", record._repr_html_())
    assert shaded == [("0.75", "70.0")]
    assert repr(record).startswith(
        "<Record '<script>"
    ) and "2 tasks, continual accuracy 0.8" in repr(record)
    assert repr(Record("new", {}, {})) == "<Record 'new': no task yet>"
    assert "no task was learned yet" in Record("new", {}, {})._repr_html_()


def test_a_large_record_stays_small_and_says_so():
    rows = [[0.5] * (k + 1) for k in range(200)]
    text = a_record(rows)._repr_html_()
    read = Reader(text)
    assert len(read.rows[-1]) == 13 and read.rows[-1][0] == "200"
    assert "200 tasks" in read.text and "12 of them are shown" in read.text and len(text) < 30_000


def test_a_comparison_is_its_table():
    runs = {"n-gateon": [a_record(), a_record(((1.0,), (0.9, 0.9)))], HOSTILE: [a_record()] * 2}
    found = Comparison(runs)
    read = Reader(found._repr_html_())
    assert read.rows[0] == ["method", "continual", "immediate", "final", "forgetting", "seconds"]
    assert read.rows[1][:2] == ["n-gateon", "90.00 ± 3.54"] and read.rows[2][0] == HOSTILE
    assert "standard deviation of 2 seeds" in read.text
    assert repr(found) == f"<Comparison of n-gateon, {HOSTILE}: 2 seeds>"


def test_what_compare_returns_is_a_comparison(tmp_path):
    asked = specified("permuted-mnist", data="mnist-5k", tasks=1, steps=2, batch=10, hidden=(4,))
    found = compare(asked, ["finetune"], 1, tmp_path)
    assert isinstance(found, Comparison) and len(Reader(found._repr_html_()).rows) == 2


def model_with_gates():
    model = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 2))
    gates = gateon.attach(model, contexts=3, density=0.5)
    return model, gates


def test_gates_and_obstruction_are_tables_of_their_sites():
    model, gates = model_with_gates()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, rate=0.5)
    gates.switch(1)
    model(torch.randn(8, 4)).square().sum().backward()
    optimizer.step()
    read = Reader(gates._repr_html_())
    share = (gates.gain(1)["0"] > 0).float().mean().item()
    assert read.rows[0] == ["site", "units", "open", "gate", "owns"]
    assert read.rows[1][:3] == ["0", "10", f"{share:.0%}"] and "3 contexts" in read.text
    assert repr(gates) == "<Gates: 3 contexts, 1 gates, switched to 1>"
    assert str(gates).splitlines()[0] == "3 contexts, 1 gates, switched to 1"
    frozen, room, _ = handle.saturation()["0"]
    read = Reader(handle._repr_html_())
    assert read.rows[1] == ["0", f"{100 * room:.1f} %", f"{100 * frozen:.1f} %"] and room < 1
    assert repr(handle) == f"<Obstruction per unit, 1 steps: least room {room:.3f} at '0'>"
    gates.switch([0, 1, 2])
    assert Reader(gates._repr_html_()).rows[1][2] == "-"


def test_a_living_model_is_a_table_of_its_tasks():
    model = gateon.LivingModel()
    assert "learned nothing yet" in Reader(model._repr_html_()).text
    rows = [[n, n % 7] for n in range(60)]
    model.learn((rows, ["low" if n < 30 else "high" for n in range(60)]), task=HOSTILE)
    read = Reader(model._repr_html_())
    assert read.rows[1][:3] == [HOSTILE, "2", f"{model.tasks[0].samples}"]
    assert f"{100 * model.tasks[0].now:.1f}" in read.rows[1] and "Room left" in read.text


def test_a_learner_says_where_it_is():
    learner = gateon.Learner(nn.Linear(4, 2), optimizer=torch.optim.SGD)
    assert repr(learner) == "<Learner finetune: 0 steps, no context yet>"
    learner.observe(torch.randn(3, 4), torch.tensor([0, 1, 0]), context=2)
    assert repr(learner) == "<Learner finetune: 1 steps, context 2>"


# Figures


def png_of(figure):
    content = figure._repr_png_()
    assert content.startswith(b"\x89PNG") and len(content) > 3000
    return content


def test_figures_of_a_record_show_its_numbers():
    figure = a_record().plot.matrix()
    image = figure.axes[0].images[0].get_array().filled(np.nan)
    np.testing.assert_allclose(image, [[100.0, np.nan], [70.0, 90.0]])
    png_of(figure)
    lines = {one.get_label(): one.get_xydata() for one in a_record().plot.curves().axes[0].lines}
    np.testing.assert_allclose(lines["task 1"], [[1, 100], [2, 70]])
    np.testing.assert_allclose(lines["task 2"], [[2, 90]])
    room, frozen = a_record().plot.availability().axes
    np.testing.assert_allclose(room.lines[0].get_xydata(), [[1, 100], [2, 80]])
    np.testing.assert_allclose(frozen.lines[0].get_xydata(), [[1, 0], [2, 10]])


def test_figures_of_a_comparison_show_means_over_seeds():
    found = Comparison({"a": [a_record(), a_record(((1.0,), (0.9, 0.9)))], "b": [a_record()] * 2})
    figure = found.plot.matrix()
    assert [axis.get_title(loc="left") for axis in figure.axes[:2]] == ["a", "b"]
    np.testing.assert_allclose(figure.axes[0].images[0].get_array()[1], [80.0, 90.0])
    png_of(found.plot.curves())


def test_figures_leave_the_backend_of_the_user_alone():
    import matplotlib

    before = matplotlib.get_backend()
    a_record().plot.matrix()
    assert matplotlib.get_backend() == before and "matplotlib.pyplot" not in vars(gateon.lazy)
    figure, file = a_record().plot.curves(), io.BytesIO()
    figure.savefig(file, format="svg")
    assert b"<svg" in file.getvalue()


def test_gates_are_drawn_from_the_directory_of_a_run(tmp_path):
    from gateon.runs.specified import run_specification

    asked = specified("permuted-mnist", data="mnist-5k", tasks=2, steps=2, batch=10, hidden=(30,))
    record = run_specification(asked, tmp_path)
    (image,) = record.plot.gates().axes[0].images
    values = image.get_array()
    assert values[0, 0] == values[1, 1] == 100 and 0 < values[0, 1] == values[1, 0] < 100
    with pytest.raises(ValueError, match="not there any more"):
        a_record().plot.gates()


def test_what_cannot_be_drawn_is_one_sentence():
    with pytest.raises(ValueError, match="No task was learned yet"):
        Record("new", {}, {}).plot.matrix()
    empty = a_record()
    empty.availability = [{}, {}]
    with pytest.raises(ValueError, match="its method has no gates"):
        empty.plot.availability()


# Progress


def test_progress_in_a_notebook_is_one_bar_that_moves(monkeypatch):
    pytest.importorskip("IPython")
    shown = []

    class Handle:
        def update(self, picture):
            shown.append(picture.data)

    monkeypatch.setattr(
        "gateon.report.progress._display", lambda picture: (shown.append(picture), Handle())[1]
    )
    monkeypatch.setattr("gateon.report.progress.OFTEN", 0.0)
    told = InNotebook()
    told.begin(HOSTILE, [4, 4], 0)
    told.step(0, 2, 0.5)
    told.task(0, "first", [0.25], 1.0)
    told.found(1, 2, 1, True)
    told.step(1, 4, 0.25)
    told.task(1, "second", [0.5, 1.0], 1.0)
    told.end()
    read = [Reader(picture) for picture in shown]
    assert HOSTILE in read[0].text and "task 1/2, step 2/4, loss 0.500" in read[1].text
    assert "mean accuracy of 1 tasks 25.00" in read[2].text
    assert "task 2, step 3: a new context, 1" in read[3].text
    assert "mean accuracy of 2 tasks 75.00" in read[-1].text and "left" not in read[-1].text
    assert [re.search(r'value="(\d+)" max="8"', one)[1] for one in shown] == list("0222888")


def test_a_notebook_runs_and_shows_all_of_it(tmp_path, monkeypatch):
    """With a real kernel; whoever opens the notebook afterwards finds tables, a figure and the bar."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = [
        "import torch, gateon; from functools import partial",
        "model = gateon.models.mlp(784, (8,), 10)\n"
        "learner = gateon.Learner(model, optimizer=partial(torch.optim.Adam, lr=1e-3),\n"
        "                         method=gateon.GateON())\n"
        "stream = gateon.streams.permuted_mnist(data='mnist-5k', tasks=2)\n"
        "record = gateon.run(stream, learner, steps=3, batch=20, progress=gateon.progress())",
        "record",
        "record.plot.matrix()",
        "gateon.gates_of(learner.model)",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    monkeypatch.setenv("PYTHONPATH", str(Path(gateon.__file__).parents[1]))
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=100, kernel_name="python3", resources=place).execute()
    bar, record, figure, gates = (cell["outputs"][-1]["data"] for cell in book.cells[1:])
    assert len(book.cells[1]["outputs"]) == 1 and "mean accuracy of 2 tasks" in bar["text/html"]
    assert Reader(record["text/html"]).rows[-1][0] == "2" and "<Record" in record["text/plain"]
    assert figure["image/png"] and Reader(gates["text/html"]).rows[0][0] == "site"
