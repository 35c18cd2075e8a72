"""Specifications of texts: options, network and method by stream; runs on a tiny random model that needs no network."""

from __future__ import annotations

import json
import os
import signal

import pytest
import torch

from gateon import cli
from gateon.networks.heads import TaskHeads
from gateon.runs import metrics
from gateon.runs.folder import checkpoints
from gateon.runs.forecast import forecast
from gateon.runs.record import Record
from gateon.runs.run import Interrupted, Quiet
from gateon.runs.specified import run_specification
from gateon.storage import checkpoint
from specified import specified

METHODS = (
    "n-gateon",
    "p-gateon",
    "gating-only",
    "finetune",
    "frozen",
    "hat-adapters",
    "bcl",
    "ctr",
    "ewc",
    "si",
    "joint",
    "isolated",
)


@pytest.fixture(scope="module", autouse=True)
def places(tmp_path_factory):
    """Where the tiny model and the tokens are kept."""
    root = tmp_path_factory.mktemp("places")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        patch.setenv("GATEON_DATA", str(root / "data"))
        yield root


def asked(stream="made-reviews", **options):
    small = {"lr": 3e-3, "epochs": 1, "tasks": 2, "limit": 40, "threads": 1}
    return specified(stream, **small | options)


@pytest.fixture(scope="module")
def stream():
    return asked().make_stream()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_texts_and_predicts_them(method, stream):
    narrow = {"width": 8} if method in ("hat-adapters", "bcl", "ctr") else {}
    learner = asked(method=method, **narrow).make_learner(stream)
    train = stream.split(0, "train")
    losses = [learner.observe(train.x[:16], train.y[:16], context=0).loss for _ in range(3)]
    assert all(0 < loss < 5 for loss in losses) and len(set(losses)) == 3
    assert learner.predict(stream.split(0, "test").x[:5]).shape == (5, 2) and learner.name == method
    assert any(isinstance(module, TaskHeads) for module in learner.model.modules()) == (
        method in ("hat-adapters", "bcl", "ctr")
    )


def test_a_short_first_task_freezes_twice_as_fast(stream):
    short, long = asked(epochs=1).make_method(stream), asked(epochs=40).make_method(stream)
    assert short.rate == long.rate == 0.05 and (short.first_rate, long.first_rate) == (0.1, None)
    assert asked(rate=0.02, epochs=1).make_method(stream).first_rate == 0.04


def test_the_papers_detector_is_that_of_the_stream():
    found = {
        stream: specified(stream, contexts="inferred").with_options({"detector.preset": "paper"})
        for stream in ("asc", "dsc", "news20", "permuted-mnist")
    }
    assert [(s["detector.threshold"], s["detector.window"]) for s in found.values()] == [
        (1.1, 3),
        (5.0, 3),
        (5.0, 3),
        (1.01, 1),
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"keep_headers": True}, "made-reviews has no option --stream.keep-headers"),
        ({"norm": "none"}, "A network language has no option --network.norm"),
        (
            {"network": "cnn"},
            "made-reviews is learned by a language model: leave --network.kind out",
        ),
        ({"method": "lamol"}, "LAMOL needs a causal language model, and tiny is "),
        ({"length": 900}, "length must be at most 64"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        one = asked(**options)
        one.make_learner(one.make_stream())


def test_measured_is_what_the_network_says_of_every_test_text(tmp_path):
    one = asked(tasks=1)
    stream = one.make_stream()
    learner = one.make_learner(stream)
    from gateon.runs.specified import learn

    record = learn(one, stream, learner, tmp_path / "out")
    test = stream.split(0, "test")
    # one by one: no padding, no order
    said = torch.cat([learner.predict(row[None]) for row in test.x]).argmax(1)
    assert record.accuracy == [[(said == test.y).double().mean().item()]]
    assert record.macro_f1 == [[metrics.macro_f1(test.y, said, 2)]]


class Stop(Quiet):
    def step(self, task, step, loss):
        if (task, step) == (1, 1):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("method", ["n-gateon", "p-gateon"])
def test_a_run_on_texts_resumes_exactly(tmp_path, method):
    whole = run_specification(asked(method=method, epochs=2), tmp_path / "whole")
    with pytest.raises(Interrupted):
        run_specification(asked(method=method, epochs=2), tmp_path / "parts", progress=Stop())
    parts = run_specification(asked(method=method, epochs=2), tmp_path / "parts")
    assert (parts.accuracy, parts.availability) == (whole.accuracy, whole.availability)
    one, other = (
        checkpoint.load(checkpoints(tmp_path / name)[0])["learner"]["model"]
        for name in ("whole", "parts")
    )
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_contexts_of_texts_can_be_inferred(tmp_path):
    record = run_specification(asked(contexts="inferred", epochs=4), tmp_path / "out")
    assert len(record.accuracy) == 2 and record.contexts[0] == 0


def test_the_program_starts_from_what_is_usual_for_texts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [
        "run",
        "made-reviews",
        "--tasks",
        "2",
        "--limit",
        "32",
        "--epochs",
        "1",
        "--out",
        "o",
        "--training.threads",
        "1",
    ]
    assert cli.main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    record = Record.load(tmp_path / "o" / "record.json")
    asked_for = record.specification
    assert json.loads(out) == record.summary and "continual_macro_f1" in record.summary
    training = asked_for["training"]
    assert (training["batch"], training["lr"], training["optimizer"]) == (32, 1e-4, "adamw")
    assert (training["epochs"], asked_for["stream"]["limit"]) == (1, 32)
    assert asked_for["stream"]["name"] == "made-reviews"
    assert "A step takes about" in err and "reviews made by a rule" in err
    assert cli.main(words) == 0  # finished: shown at once
    assert "macro-F1" in capsys.readouterr().out


def test_own_texts_run_by_their_path(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"text": f"the light is {word}", "label": label}
        for label, word in enumerate(("good", "bad"))
    ] * 30
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert (
        cli.main(
            [
                "run",
                "text:mine.jsonl",
                "--model",
                "tiny",
                "--stream.length",
                "16",
                "--epochs",
                "1",
                "--quiet",
                "--json",
            ]
        )
        == 0
    )
    assert (tmp_path / "runs" / "text-mine.jsonl-n-gateon-0" / "record.json").exists()
    assert cli.main(["list", "streams"]) == 0 and "text:PATH" in capsys.readouterr().out


def test_a_forecast_counts_the_epochs_of_every_task(stream):
    found = forecast(asked(epochs=5), stream)
    assert (
        found.seconds == pytest.approx(found.step_seconds * 2 * 5 * 2)
        and found.step_bytes > 100_000
    )
