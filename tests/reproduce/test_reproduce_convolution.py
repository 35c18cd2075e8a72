"""The tables of convolutional networks: their sizes, small runs, and their targets."""

from __future__ import annotations

import json

import pytest

from gateon.reproduce import cells, load, names, read, reproduce

pytestmark = pytest.mark.usefixtures("few_digits")
CIFAR, ROTATED = "split-cifar100", "rotated-mnist"
CONVOLUTION = ("table-cnn", "table-cnn-split", "table-cifar", "figure-correlation-cnn")
FEW = {"training.steps": 2, "training.batch": 8, "stream.tasks": 2}
TINY = {"network.channels": [3, 4], "network.hidden": [6]} | FEW


def asked(job, scale, row, stream):
    return cells(load(job), scale, rows=[row], streams=[stream])[0].specification


def test_the_paper_s_scale_has_the_paper_s_networks():
    cnn = asked("table-cnn", "paper", "n-GateON", ROTATED)
    assert (cnn.network.channels, cnn.network.hidden) == ((256, 512), (5000, 5000))
    assert (cnn.training.steps, cnn.training.batch, cnn["stream.tasks"]) == (3000, 1000, 100)
    small = asked("table-cnn-split", "paper", "n-GateON", "split-mnist")
    assert (small.network.channels, small.network.hidden) == ((32, 32), (2000, 2000))
    assert (small.training.steps, small.training.batch) == (250, 1000)
    wide = asked("table-cifar", "paper", "n-GateON", CIFAR)
    assert (wide.network.depth, wide.network.widen, wide["stream.tasks"]) == (28, 10, 20)
    assert (wide.training.optimizer, wide.training.lr, wide.training.batch) == ("sgd", 0.02, 128)
    assert wide.method.preset == cnn.method.preset == "paper"
    assert wide.make_method().rate == {"first": 0.04, "*": 0.004}
    assert wide.network.kind == "wide-resnet"
    assert cnn.network.kind == small.network.kind == "cnn"


@pytest.mark.parametrize("scale", ["quick", "cpu", "paper"])
@pytest.mark.parametrize("job", list(map(load, CONVOLUTION)), ids=CONVOLUTION)
def test_every_row_can_be_asked_for_and_trains_alike(job, scale):
    found = [cell for cell in cells(job, scale) if not cell.row.scales or scale in cell.row.scales]
    assert all(cell.specification is not None for cell in found)
    for stream in job.streams:
        asked = [c.specification for c in found if c.stream == stream]
        sizes = [
            [s.training.steps, s.training.batch, s.training.optimizer]
            + [s.get(f"network.{name}") for name in ("channels", "hidden", "depth")]
            for s in asked
        ]
        assert len({json.dumps(size) for size in sizes}) == 1
        others = {
            (s.training.lr, s.get("network.widen")) for s in asked if not s.get("method.rescale")
        }
        assert len(others) == 1, "a comparison at equal cost"


def test_gateon_in_a_wider_network_has_no_more_units_at_work_than_the_others():
    rows = {c.row.label: c.specification for c in cells(load("table-cifar"), "cpu")}
    assert {
        rows[row].network.widen
        for row in ("n-GateON, narrow", "p-GateON, narrow", "Isolated", "EWC", "Finetune")
    } == {2}
    for row in ("n-GateON", "p-GateON"):
        density = rows[row].make_method().density
        densest = density if isinstance(density, float) else max(density.values())
        assert rows[row].network.widen * densest <= 2


def test_the_paper_s_numbers_are_those_it_prints():
    fed = load("table-cnn").paper
    assert fed["n-GateON 0"][ROTATED] == {
        "continual_accuracy": 99.11,
        "accuracy_deviation": 0.25,
        "forgetting_rate": 0.06,
    }
    assert "accuracy_deviation" not in fed["Vanilla"][ROTATED], "a blank in the paper"
    printed = {"EWC": 75.3, "n-GateON 0": 84.6, "p-GateON 0": 82.5, "RMN": 80.1, "Isolated": 85.4}
    assert {
        row: streams[CIFAR]["continual_accuracy"]
        for row, streams in load("table-cifar").paper.items()
    } == printed


def test_a_table_with_convolutions_is_made(tmp_path):
    folder = reproduce(
        load("table-cnn-split"),
        "quick",
        out=tmp_path / "runs",
        results=tmp_path / "results",
        rows=["n-GateON"],
        changes=TINY,
    )
    entry = read(folder / "record.json")["entries"][0]
    assert entry["settings"]["network"]["channels"] == [3, 4]
    assert entry["settings"]["network"]["kind"] == "cnn"
    assert {"continual_accuracy", "accuracy_deviation", "forgetting_rate"} <= set(entry["measures"])
    assert "99.98" in (folder / "table.md").read_text()


def test_every_method_of_the_cifar_table_learns_a_wide_resnet(tmp_path):
    folder = reproduce(
        load("table-cifar"),
        "quick",
        out=tmp_path / "runs",
        results=tmp_path / "results",
        changes=FEW,
    )
    entries = read(folder / "record.json")["entries"]
    assert [entry["row"] for entry in entries] == [
        row.label for row in load("table-cifar").rows if not row.scales
    ]
    assert not any("failed" in entry for entry in entries)


def test_gates_of_convolutions_are_correlated_layer_by_layer(tmp_path):
    job = load("figure-correlation-cnn")
    folder = reproduce(
        job,
        "quick",
        out=tmp_path / "runs",
        results=tmp_path / "results",
        streams=[ROTATED],
        changes=TINY,
    )
    layers = read(folder / "record.json")["entries"][0]["series"]["correlation"]["mean"]
    assert [len(layer) for layer in layers] == [2, 2, 2], (
        "two convolutions and a hidden layer, two tasks"
    )
    assert (folder / "figure.svg").exists()


def table(job, stream, **rows):
    """The content of a record with these continual accuracies, in percent."""
    entries = [
        {
            "row": row,
            "column": "best",
            "stream": stream,
            "seeds": [0],
            "measures": {"continual_accuracy": {"mean": n / 100}},
        }
        for row, n in rows.items()
    ]
    return {job: {"entries": entries, "rows": list(rows), "streams": [stream]}}


def verdicts(found, words):
    return [
        target.check(found.get(name)).holds
        for name in names()
        for target in load(name).targets
        if words in target.says
    ]


def test_the_targets_of_cifar_compare_rows():
    rows = {
        "n-GateON": 60.0,
        "Isolated": 61.4,
        "n-GateON, narrow": 59.0,
        "EWC": 54.9,
        "Finetune": 44.5,
    }
    found = table("table-cifar", CIFAR, **rows)
    assert verdicts(found, "split CIFAR-100") == [True, True, True, False, False] + [None] * 5
    worse = table("table-cifar", CIFAR, **rows | {"Isolated": 61.6, "EWC": 55.1, "Finetune": 45.1})
    assert verdicts(worse, "split CIFAR-100") == [False] * 5 + [None] * 5
    per_parameter = table(
        "table-cifar", CIFAR, **rows | {"p-GateON": 61.1, "p-GateON, narrow": 61.1}
    )
    assert verdicts(per_parameter, "split CIFAR-100")[5:] == [True] * 5
    assert verdicts({}, "split CIFAR-100") == [None] * 10


def test_the_targets_of_convolutions_on_mnist_read_their_own_tables():
    assert verdicts(
        table("table-cnn-split", "split-mnist", **{"n-GateON": 99.95}), "two convolutions of 32"
    ) == [True]
    assert verdicts(
        table("table-1", "split-mnist", **{"n-GateON": 99.99}), "two convolutions of 32"
    ) == [None]
    assert (
        verdicts(table("table-cnn", ROTATED, **{"n-GateON": 98.9}), "rotated, with convolutions")[0]
        is False
    )
