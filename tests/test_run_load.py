"""A trained model out of the directory of a run: without its data, with the names of its labels."""

from __future__ import annotations

import json
import os
import shutil
import signal
from functools import partial

import numpy as np
import pytest
import torch

from gateon import GateON, Learner, run, streams
from gateon.models import mlp
from gateon.runs.folder import checkpoints
from gateon.runs.load import load_run
from gateon.runs.progress import Quiet
from gateon.runs.record import Record
from gateon.runs.specified import learn
from gateon.runs.stopping import Interrupted
from gateon.storage import checkpoint
from specified import specified

KINDS = ("cup", "plate", "spoon")
SMALL = {"hidden": (30,), "steps": 40, "batch": 20, "threads": 1, "lr": 0.02}


@pytest.fixture
def photos(tmp_path):
    """Two shops, each with photos of three kinds of things in colours of their own."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for k, shop in enumerate(("north", "south")):
        for n, kind in enumerate(KINDS):
            folder = tmp_path / "photos" / shop / kind
            folder.mkdir(parents=True)
            for number in range(30):
                pixels = draw.integers(0, 90, (4, 4, 3))
                pixels[..., (n + k) % 3] += 150
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return tmp_path / "photos"


def learned(asked, out, progress=None):
    stream = asked.make_stream()
    learner = asked.make_learner(stream)
    return stream, learner, learn(asked, stream, learner, out, progress=progress)


class Stop(Quiet):
    """Presses Ctrl-C in the second task."""

    def step(self, task, step, loss):
        if (task, step) == (1, 5):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("method", ["n-gateon", "p-gateon", "xdg", "zoo"])
def test_it_answers_with_the_names_of_classes_and_needs_no_data(photos, tmp_path, method):
    stream, learner, record = learned(
        specified(f"own:{photos}", method=method, **SMALL), tmp_path / "out"
    )
    tests = [stream[k].test for k in range(2)]
    assert record.labels == [list(KINDS)] * 2 and record.shape == [3, 4, 4]
    assert record.samples == [len(stream[k].train) for k in range(2)] and record.classes == 3
    shutil.rmtree(photos)
    generator, threads = torch.get_rng_state(), torch.get_num_threads()
    model = load_run(tmp_path / "out")
    assert repr(model) == f"LoadedRun({record.name!r}, tasks=2)"
    assert torch.equal(torch.get_rng_state(), generator) and torch.get_num_threads() == threads
    assert model.tasks == ["north", "south"] and model.record.summary == record.summary
    for k, (name, test) in enumerate(zip(model.tasks, tests, strict=True)):
        answers = model.predict(test.x.numpy(), task=name)
        assert answers.tasks == [name] * len(test) and set(answers.certainty) == {1.0}
        right = np.mean(
            [KINDS[y] == label for y, label in zip(test.y, answers.labels, strict=True)]
        )
        assert right == record.accuracy[-1][k] > 1 / 3
        told = learner.predict(test.x, context=k).double().softmax(1).max(1).values
        assert np.array_equal(answers.probabilities, told.numpy())
        assert model.predict(test.x, task=k).labels == answers.labels


def test_nobody_says_which_task_it_is(photos, tmp_path):
    asked = specified(f"own:{photos}", **{**SMALL, "steps": 150})
    stream, learner, _ = learned(asked, tmp_path / "out")
    model = load_run(tmp_path / "out")
    test = stream[1].test
    answers = model.predict(test.x)
    seen = learner.recognise(test.x, each=True)
    assert answers.tasks == [("north", "south")[context] for context in seen.context]
    assert np.array_equal(answers.certainty, seen.certainty.double().numpy())
    rows = torch.arange(len(test))
    outputs = torch.stack(list(learner.outputs_under(test.x, range(2))))[seen.context, rows]
    assert answers.labels == [KINDS[label] for label in outputs.argmax(1)]


def test_a_network_without_contexts_has_no_task_to_tell(photos, tmp_path):
    asked = specified(f"own:{photos}", method="finetune", norm="none", **SMALL)
    stream, learner, _ = learned(asked, tmp_path / "out")
    answers = load_run(tmp_path / "out").predict(stream[1].test.x)
    assert set(answers.tasks) == {""} and set(answers.certainty) == {0.0}
    assert answers.labels == [KINDS[n] for n in learner.predict(stream[1].test.x, 1).argmax(1)]


def test_labels_of_split_digits_are_the_digits_of_the_task(tmp_path):
    options = {"tasks": 2, "data": "mnist-5k", "epochs": 2, "method": "hat", "batch": 50}
    asked = specified("split-mnist", **options, hidden=(30,), threads=1)
    stream, _, record = learned(asked, tmp_path)
    assert record.labels == [["4", "1"], ["8", "0"]]
    assert set(load_run(tmp_path).predict(stream[1].test.x[:50], task=1).labels) <= {"8", "0"}


def test_what_is_loaded_learns_on_as_the_run_would_have(photos, tmp_path):
    stream, learner, _ = learned(specified(f"own:{photos}", **SMALL), tmp_path / "out")
    model = load_run(tmp_path / "out")
    train = stream[0].train
    for one in (learner, model.learner):
        one.observe(train.x[:20], train.y[:20], context=0)
    assert torch.equal(*(one.predict(train.x, context=0) for one in (learner, model.learner)))


def test_a_run_that_is_not_finished_answers_too(photos, tmp_path):
    with pytest.raises(Interrupted):
        learned(specified(f"own:{photos}", **SMALL), tmp_path / "out", Stop())
    x = streams.own(photos)[0].test.x
    shutil.rmtree(photos)
    model = load_run(tmp_path / "out")
    assert model.tasks == ["north", "south"]
    assert set(model.predict(x, task="north").labels) <= set(KINDS)


@pytest.mark.parametrize("method", ["n-gateon", "finetune", "ctr"])
def test_texts_are_answered_as_texts(tmp_path, monkeypatch, method):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GATEON_DATA", str(tmp_path / "data"))
    path = tmp_path / "tickets.jsonl"
    rows = [
        {"task": task, "text": f"the {word} {thing}", "label": label}
        for task in ("bank", "trip")
        for word, label in (("good", "praise"), ("broken", "blame"))
        for thing in [
            "phone",
            "camera",
            "router",
            "book",
            "film",
            "game",
            "kitchen",
            "knife",
            "screen",
            "battery",
        ]
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    asked = specified(
        f"text:{path}",
        method=method,
        model="tiny",
        length=32,
        epochs=4,
        batch=8,
        lr=3e-3,
        threads=1,
    )
    stream, _, record = learned(asked, tmp_path / "out")
    assert record.labels == [["blame", "praise"]] * 2
    path.unlink()
    model = load_run(tmp_path / "out")
    test = stream[1].test
    tokens = model.predict(test.x, task="trip")
    right = np.mean(
        [("blame", "praise")[y] == a for y, a in zip(test.y, tokens.labels, strict=True)]
    )
    assert right == record.accuracy[1][1]
    answers = model.predict(["the good phone", ("the broken book", None)], task="trip")
    assert set(answers.labels) <= {"blame", "praise"} and len(answers) == 2
    with pytest.raises(ValueError, match="Give a list of texts"):
        model.predict("the good phone")


# Runs begun from Python, and what is refused


def made(hidden=12):
    torch.manual_seed(0)
    adam = partial(torch.optim.Adam, lr=0.05)
    return Learner(mlp(784, (hidden,), 10), optimizer=adam, method=GateON())


def test_a_run_begun_from_python_takes_its_learner(tmp_path):
    stream, learner = streams.permuted_mnist(2, data="mnist-5k"), made()
    run(stream, learner, tmp_path, steps=4, batch=30)
    with pytest.raises(ValueError, match=r"started from Python .*: give load_run its learner"):
        load_run(tmp_path)
    x = stream[1].test.x[:9]
    answers = load_run(tmp_path, made()).predict(x, task="permutation 1")
    assert answers.labels == [str(int(n)) for n in learner.predict(x, context=1).argmax(1)]
    with pytest.raises(ValueError, match="does not fit this learner"):
        load_run(tmp_path, made(hidden=13))


def test_what_cannot_be_loaded_is_a_sentence(photos, tmp_path):
    with pytest.raises(ValueError, match="There is no directory"):
        load_run(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty holds no run: there is no model to load"):
        load_run(tmp_path / "empty")
    out = tmp_path / "out"
    learned(specified(f"own:{photos}", **SMALL), out)
    (path,) = checkpoints(out)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(ValueError, match="is damaged or not a gateon checkpoint"):
        load_run(out)
    (out / "record.json").rename(tmp_path / "record.json")
    path.write_bytes(whole)
    state = checkpoint.load(path)
    bad = ([], {"shape": [0, 1]}, {"shape": [4.5]}, {"tasks": 10**9}, {"classes": "3"})
    for inputs in bad:
        checkpoint.save({**state, "inputs": inputs}, path)
        with pytest.raises(ValueError, match=r"not a checkpoint of a run \(inputs must be"):
            load_run(out)
    (tmp_path / "record.json").rename(out / "record.json")
    checkpoint.save({"step": 1}, path)
    with pytest.raises(ValueError, match="is not a checkpoint of a run"):
        load_run(out)
    path.unlink()
    with pytest.raises(ValueError, match="holds a run without its last checkpoint"):
        load_run(out)


def test_what_cannot_be_answered_is_a_sentence(photos, tmp_path):
    learned(specified(f"own:{photos}", method="zoo", **SMALL), tmp_path / "out")
    model = load_run(tmp_path / "out")
    x = np.zeros((2, 3, 4, 4), np.float32)
    with pytest.raises(
        ValueError, match=r"zoo must be told the task .*: choose one of north, south"
    ):
        model.predict(x)
    with pytest.raises(ValueError, match="There is no task 'west': choose one of north, south"):
        model.predict(x, task="west")
    for wrong in (x[0], x[:, :2], x[:0]):
        with pytest.raises(ValueError, match=r"must have the shape \(N, 3, 4, 4\)"):
            model.predict(wrong, task=0)
    with pytest.raises(ValueError, match="floating-point numbers as the stream makes them"):
        model.predict(x.astype(np.uint8), task=0)
    with pytest.raises(ValueError, match="has learned no texts"):
        model.predict(["a cup"], task=0)


def test_records_of_an_older_gateon_are_loaded_with_their_data(photos, tmp_path):
    out = tmp_path / "out"
    stream, _, record = learned(specified(f"own:{photos}", **SMALL), out)
    content = json.loads((out / "record.json").read_text())
    for name in ("labels", "samples", "shape", "classes"):
        del content[name]
    (out / "record.json").write_text(json.dumps(content))
    assert Record.load(out / "record.json").labels == []
    answers = load_run(out).predict(stream[1].test.x, task="south")
    right = np.mean(
        [str(int(y)) == a for y, a in zip(stream[1].test.y, answers.labels, strict=True)]
    )
    assert right == record.accuracy[1][1]
