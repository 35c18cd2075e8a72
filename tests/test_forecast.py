"""Memory and time of a run are told before it begins, and what does not fit is refused; augmented runs resume exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from gateon.networks import cnn
from gateon.runs import forecast
from gateon.runs.run import Quiet, run
from gateon.runs.specification import Specification
from specified import specified

SMALL = Specification.from_options(
    {
        "stream.name": "split-mnist",
        "stream.tasks": 2,
        "network.kind": "cnn",
        "network.channels": (4, 6),
        "network.hidden": (10,),
        "method.density": 0.5,
        "training.steps": 6,
        "training.batch": 20,
        "stream.data": "mnist-5k",
        "training.threads": 1,
    }
)


def test_the_memory_of_activity_grows_with_samples_and_channels_and_not_with_weights():
    x = torch.zeros(4, 1, 28, 28)
    few, many = (
        forecast.activity_bytes(cnn((1, 28, 28), (channels, 4), (8,)), x) for channels in (4, 40)
    )
    assert few >= 4 * 26 * 26 * 4 and 5 * few < many < 20 * few
    wide, narrow = (
        forecast.activity_bytes(
            nn.Sequential(nn.Linear(units, 4), nn.ReLU()), torch.zeros(4, units)
        )
        for units in (100, 50)
    )
    assert wide < 2.2 * narrow < 100 * 100 * 4, "the Linear's weight is not counted"


def test_a_forecast_is_a_trial_of_the_run_that_changes_nothing():
    stream = SMALL.make_stream()
    found = forecast.forecast(SMALL.with_options({"detector.contexts": "inferred"}), stream)
    assert found.seconds == pytest.approx(found.step_seconds * 2 * 6) and found.step_bytes > 10_000
    shown = str(replace(found, step_seconds=2.0, step_bytes=3_210_000_000, seconds=7200.0))
    assert shown == "A step takes about 2 seconds and 3.2 GB here: projected 2.0 hours of training."
    first, _, again = (
        SMALL.make_learner(stream),
        forecast.forecast(SMALL, stream),
        SMALL.make_learner(stream),
    )
    for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_what_does_not_fit_is_refused_before_it_is_tried(monkeypatch):
    monkeypatch.setattr(forecast, "free_bytes", lambda device: 1000)
    with pytest.raises(
        ValueError,
        match=r"A step of 20 samples needs about 0\.0 GB, and 0\.0 GB are free: choose a smaller batch",
    ):
        forecast.forecast(SMALL, SMALL.make_stream())


def test_free_memory_is_a_number_or_unknown():
    free = forecast.free_bytes()
    assert free is None or free > 1_000_000
    assert forecast.free_bytes("meta") is None


class Stops(Quiet):
    """Breaks a run off after a number of steps."""

    def __init__(self, after):
        self.left = after

    def step(self, task, step, loss):
        self.left -= 1
        if self.left == 0:
            raise ValueError("enough")


def learned(specification, out, progress=None):
    stream = specification.make_stream()
    learner = specification.make_learner(stream)
    record = run(stream, learner, out, steps=6, batch=20, progress=progress)
    return record, learner.model.state_dict()


def test_an_augmented_run_learns_other_images_and_resumes_exactly(tmp_path):
    varied = SMALL.with_options({"stream.augment": True})
    assert varied.make_stream().augment is not None and SMALL.make_stream().augment is None
    (record, whole), (_, plain) = learned(varied, None), learned(SMALL, None)
    assert any(not torch.equal(whole[name], plain[name]) for name in whole)
    with pytest.raises(ValueError, match="enough"):
        learned(varied, tmp_path / "run", Stops(8))
    resumed, model = learned(varied, tmp_path / "run")
    assert resumed.accuracy == record.accuracy
    assert all(torch.equal(whole[name], model[name]) for name in whole)


@pytest.mark.parametrize("network", ["cnn", "wide-resnet"])
@pytest.mark.parametrize("heads", ["shared", "per-task"])
def test_every_network_learns_with_either_kind_of_head(network, heads):
    sizes = {"network.depth": 10, "network.widen": 1} if network == "wide-resnet" else {}
    asked = SMALL.with_options(
        {
            "network.kind": network,
            "network.heads": heads,
            **sizes,
            "method.gate_penalty": 0.1,
            "training.optimizer": "sgd",
        }
    )
    stream = asked.make_stream()
    learner = asked.make_learner(stream)
    x, y = stream[0].train.x[:8], stream[0].train.y[:8]
    for context in (0, 1):
        assert learner.observe(x, y, context=context).loss > 0
    assert learner.is_compact and learner.predict(x, context=0).shape == (8, 2)
    heads_found = sum(
        "head.weight" in name and "context_gate" not in name for name in learner.model.state_dict()
    )
    assert heads_found == (1 if heads == "shared" else 2)


def test_rates_and_the_schedule_are_those_of_the_network_unless_asked_otherwise():
    assert (
        Specification.from_options({"stream.name": "split-cifar100", "network.kind": "mlp"})
        .make_method()
        .rate
        == 0.01
    )
    assert Specification.from_options({"stream.name": "split-cifar100"}).make_method().rate == {
        "first": 0.04,
        "*": 0.004,
    }
    assert Specification.from_options(
        {"stream.name": "split-mnist", "network.kind": "cnn", "method.preset": "paper"}
    ).make_method().rate == {
        "conv*": 0.004,
        "*": 0.01,
    }
    assert (
        Specification.from_options({"stream.name": "split-cifar100", "method.rate": 0.5})
        .make_method()
        .rate
        == 0.5
    )
    assert Specification.from_options(
        {"stream.name": "split-cifar100", "method.rate": "group1*=0.5,*=0"}
    ).make_method().rate == {
        "group1*": 0.5,
        "*": 0.0,
    }
    for wrong in ("first", "first=fast", "=,"):
        with pytest.raises(
            ValueError,
            match="rate",
        ):
            Specification.from_options({"stream.name": "split-cifar100", "method.rate": wrong})


def test_options_that_do_not_fit_the_stream_are_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"permuted-mnist has no option --stream.classes-per-task"):
        Specification.from_options(
            {
                "stream.name": "permuted-mnist",
                "stream.classes_per_task": 3,
                "stream.data": "mnist-5k",
            }
        ).make_stream()
    assert (
        Specification.from_options(
            {
                "stream.name": "split-mnist",
                "stream.classes_per_task": 5,
                "stream.tasks": 2,
                "stream.data": "mnist-5k",
            }
        )
        .make_stream()
        .classes
        == 5
    )
    asked = Specification.from_options(
        {
            "stream.name": "split-mnist",
            "network.kind": "wide-resnet",
            "network.depth": 11,
            "stream.data": "mnist-5k",
        }
    )
    with pytest.raises(ValueError, match="depth of a Wide ResNet"):
        asked.make_learner(asked.make_stream())
    with pytest.raises(ValueError, match=r"--network.channels must have at least one value"):
        specified("split-mnist", network="cnn", channels=())


def test_the_program_tells_the_forecast_before_a_run_begins(tmp_path, monkeypatch, capsys):
    cli = pytest.importorskip("gateon.cli")
    monkeypatch.chdir(tmp_path)
    words = [
        "run",
        "split-mnist",
        "--network",
        "cnn",
        "--network.channels",
        "4",
        "--hidden",
        "8",
        "--tasks",
        "1",
        "--data",
        "mnist-5k",
    ]
    words += ["--steps", "2", "--batch", "20", "--method.rate", "conv*=0.01,*=0.1"]
    words += ["--training.threads", "1"]
    assert cli.main(words) == 0
    assert "projected" in capsys.readouterr().err
    assert cli.main([*words, "--json"]) == 0
    assert "projected" not in capsys.readouterr().err, "it is finished"
    monkeypatch.setattr("gateon.runs.forecast.free_bytes", lambda device: 1000)
    assert cli.main([*words, "--out", "other", "--quiet"]) == 2
    assert "choose a smaller batch" in capsys.readouterr().err and not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"contexts": "inferred", "threshold": 2.0, "window": 5},
        {"method": "zoo"},
        {"batch": 5000},  # more than a task has: the run says so
    ],
)
def test_whatever_can_be_asked_for_can_be_forecast(changes):
    asked = {
        "network": "cnn",
        "channels": (4,),
        "hidden": (8,),
        "steps": 2,
        "batch": 8,
        "tasks": 2,
        "data": "mnist-5k",
    }
    specification = specified("split-mnist", **asked | changes)
    assert forecast.forecast(specification, specification.make_stream()).step_bytes > 0
