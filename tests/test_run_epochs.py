"""Runs by epochs, on tasks of different sizes: how many steps, which rows, what learners are told, and exact resuming."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
import torch

from gateon import Learner
from gateon.report.table import markdown, summarise
from gateon.report.terminal import heading
from gateon.runs.batches import batches, outline, steps_of
from gateon.runs.folder import checkpoints
from gateon.runs.record import MACRO_F1
from gateon.runs.run import Interrupted, Quiet
from gateon.runs.specified import run_specification
from gateon.storage import checkpoint
from gateon.streams import Split
from specified import specified

ROWS = (50, 31, 80)


@pytest.fixture
def data(tmp_path):
    """Three tasks of different sizes, with a class that is rare."""
    folder = tmp_path / "data"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for k, rows in enumerate(ROWS):
        arrays = {}
        for part, count in (("train", rows), ("test", 40)):
            y = (np.arange(count) % 5 == 0).astype(np.int64)
            arrays |= {
                f"x_{part}": (draw.normal(size=(count, 6)) + 2 * y[:, None]).astype(np.float32),
                f"y_{part}": y,
            }
        np.savez(folder / f"task{k}.npz", **arrays)
    return folder


def asked(data, **options):
    small = {"hidden": (8,), "epochs": 2, "batch": 20, "threads": 1}
    return specified(f"own:{data}", **small | options)


class Watch(Quiet):
    def __init__(self, stop_at=None):
        self.seen, self.stop_at = [], stop_at

    def begin(self, name, steps, at):
        self.steps = list(steps)

    def step(self, task, step, loss):
        self.seen.append((task, step))
        if len(self.seen) == self.stop_at:
            os.kill(os.getpid(), signal.SIGINT)


def test_every_task_has_the_steps_of_its_epochs(data, tmp_path):
    watch = Watch()
    stream = asked(data).make_stream()
    sizes = [len(stream.split(k, "train")) for k in range(3)]
    wanted = [2 * -(-size // 20) for size in sizes]
    record = run_specification(asked(data), tmp_path / "out", progress=watch)
    assert len(set(wanted)) > 1 and watch.steps == wanted == steps_of(stream, 20, 999, 2)
    assert watch.seen == [
        (task, step + 1) for task, steps in enumerate(wanted) for step in range(steps)
    ]
    assert record.specification["training"]["epochs"] == 2


def test_an_epoch_has_every_row_once_and_its_last_batch_is_smaller():
    split = Split(torch.zeros(11, 2), torch.zeros(11, dtype=torch.int64))
    rows = [batch.tolist() for batch in batches(split, 4, 6, (0, 1), 0, whole=True)]
    assert [len(row) for row in rows] == [4, 4, 3] * 2
    for epoch in (rows[:3], rows[3:]):
        assert sorted(row for batch in epoch for row in batch) == list(range(11))
    assert [batch.tolist() for batch in batches(split, 4, 6, (0, 1), 4, whole=True)] == rows[4:]


def test_texts_of_a_batch_are_of_similar_length_and_every_one_comes_once():
    lengths = torch.arange(40)[torch.randperm(40, generator=torch.Generator().manual_seed(0))]
    split = Split(torch.zeros(40, 2), torch.zeros(40, dtype=torch.int64), lengths=lengths)
    rows = list(batches(split, 8, 10, (0, 0), 0, whole=True))
    assert sorted(torch.cat(rows[:5]).tolist()) == list(range(40))
    assert max((lengths[batch].max() - lengths[batch].min()).item() for batch in rows) < 20
    assert [batch.tolist() for batch in batches(split, 8, 10, (0, 0), 7, whole=True)] == [
        batch.tolist() for batch in rows[7:]
    ]


def test_a_batch_larger_than_a_task_is_all_of_it(data, tmp_path):
    watch = Watch()
    run_specification(asked(data, batch=500), tmp_path / "out", progress=watch)
    assert watch.steps == [2, 2, 2]


def test_the_learner_is_told_of_every_task_before_it_begins(data, monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr(Learner, "expect", lambda self, coming: told.append(coming))
    run_specification(asked(data, method="finetune"), tmp_path / "out")
    stream = asked(data).make_stream()
    splits = [stream.split(k, "train") for k in range(3)]
    assert told == [
        outline(split, 2, steps, 2)
        for split, steps in zip(splits, steps_of(stream, 20, 1, 2), strict=True)
    ]
    assert [one.epoch for one in told] == [one.steps // 2 for one in told]
    assert [sum(one.counts) for one in told] == [len(split) for split in splits]


@pytest.mark.parametrize("method", ["n-gateon", "finetune", "isolated", "joint"])
@pytest.mark.parametrize("stop_at", [3, 6, 9])
def test_a_run_by_epochs_with_weights_and_a_linear_schedule_resumes_exactly(
    data, tmp_path, method, stop_at
):
    options = {
        "method": method,
        "schedule": "linear",
        "warm_up": 0.3,
        "class_weights": True,
        "optimizer": "adamw",
    }
    whole = run_specification(asked(data, **options), tmp_path / "whole")
    with pytest.raises(Interrupted):
        run_specification(asked(data, **options), tmp_path / "parts", progress=Watch(stop_at))
    parts = run_specification(asked(data, **options), tmp_path / "parts")
    assert (parts.accuracy, parts.macro_f1) == (whole.accuracy, whole.macro_f1)
    states = [
        checkpoint.load(checkpoints(tmp_path / name)[0])["learner"] for name in ("whole", "parts")
    ]
    models = [(state.get("learner") or state)["model"] for state in states]
    assert models[0].keys() == models[1].keys() and all(
        torch.equal(models[0][name], models[1][name]) for name in models[0]
    )


def test_weights_of_classes_change_what_is_learned(data, tmp_path):
    plain, weighed = (
        run_specification(asked(data, class_weights=weights), tmp_path / str(weights)).macro_f1
        for weights in (False, True)
    )
    assert plain != weighed


def test_another_number_of_epochs_is_another_run(data, tmp_path):
    run_specification(asked(data), tmp_path / "out")
    with pytest.raises(ValueError, match=r"holds another run, with training.epochs 2 and not 3"):
        run_specification(asked(data, epochs=3), tmp_path / "out")


def test_macro_f1_stands_beside_accuracy_everywhere(data, tmp_path):
    record = run_specification(asked(data), tmp_path / "out", isolated=True)
    summary = record.summary
    assert set(MACRO_F1) | set(MACRO_F1.values()) == set(summary)
    alone = float(np.mean(record.isolated_macro_f1))
    assert summary["macro_f1_deviation"] == pytest.approx(
        (summary["immediate_macro_f1"] - alone) / alone
    )
    assert summary["continual_macro_f1"] != summary["continual_accuracy"]
    assert json.loads((tmp_path / "out" / "record.json").read_text())["summary"] == summary
    table = markdown(summarise({"m": [record]}), 1)
    assert (
        "| method | continual | macro-F1 |" in table
        and f"{100 * summary['continual_macro_f1']:.2f}" in table
    )


def test_the_heading_tells_the_least_and_the_most_steps():
    assert (
        heading("s m", [4, 2, 6], 5) == "s m: 3 tasks of 2 to 6 steps, resuming at task 2, step 1"
    )
