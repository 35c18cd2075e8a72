"""Faults while a run goes: a disk that is full at any write, signals, memory that runs out, data that vanish, clocks that jump."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from gateon import Learner, Method, streams
from gateon.runs.folder import checkpoints, newest
from gateon.runs.run import Quiet, Terminated, run
from gateon.runs.stopping import stoppable
from gateon.storage import checkpoint

STEPS = 2


class Counts(Method):
    """Knows how often a task was over."""

    name = "counts"

    def __init__(self):
        self.ended = 0

    def end_task(self, model, task, data):
        self.ended += 1

    def state_dict(self):
        return {"ended": self.ended}

    def load_state_dict(self, state):
        self.ended = state["ended"]

    def __repr__(self):
        return "Counts()"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Asking git for the commit takes longer than these runs."""
    monkeypatch.setattr(sys.modules["gateon.runs.loop"], "environment", lambda: {"time": "now"})


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for k in range(3):
        x, y = np.random.default_rng(k).normal(size=(20, 3)).astype(np.float32), np.arange(20) % 2
        np.savez(folder / f"t{k}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return folder


def learner():
    torch.manual_seed(0)
    # dropout draws numbers
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(), torch.nn.Linear(4, 2))
    return Learner(model, optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9), method=Counts())


def go(data, out, progress=None, who=None, save_every=0.0):
    return run(
        streams.own(data),
        who or learner(),
        out,
        steps=STEPS,
        batch=5,
        progress=progress,
        save_every=save_every,
    )


def left(out):
    """What a finished run leaves, but for times."""
    record = json.loads((out / "record.json").read_text())
    del record["seconds"], record["environment"]["time"]
    (path,) = checkpoints(out)
    state = checkpoint.load(path)
    del state["times"]
    checkpoint.save(state, out.parent / "without-times")
    return record, path.name, (out.parent / "without-times").read_bytes()


@pytest.fixture
def whole(data, tmp_path):
    go(data, tmp_path / "whole")
    return left(tmp_path / "whole")


class Faulty:
    """Counts every opening, write, sync and rename under the writer, and makes one of them fail."""

    def __init__(self, monkeypatch, at, error):
        self.at, self.error, self.calls = at, error, 0
        plain_open, plain_text = open, Path.write_text
        for name in ("fsync", "replace"):
            monkeypatch.setattr(os, name, self.around(getattr(os, name)))
        monkeypatch.setattr(Path, "write_text", self.around(plain_text))

        def opened(*arguments):
            self.around(lambda: None)()
            return FaultyFile(plain_open(*arguments), self)

        monkeypatch.setattr(checkpoint, "open", opened, raising=False)

    def around(self, call):
        def counted(*arguments, **options):
            self.calls += 1
            if self.calls == self.at:
                raise OSError(self.error, os.strerror(self.error))
            return call(*arguments, **options)

        return counted


class FaultyFile:
    def __init__(self, file, faulty):
        self.file, self.write = file, faulty.around(file.write)

    def fileno(self):
        return self.file.fileno()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


@pytest.mark.parametrize(
    ("error", "save_every", "stride", "least"),
    [("ENOSPC", 1e9, 1, 20), ("ENOSPC", 0.0, 5, 20), ("EROFS", 0.0, 13, 7), ("EIO", 0.0, 17, 6)],
)
def test_whatever_fails_under_the_writer_nothing_is_lost(
    data, tmp_path, whole, monkeypatch, error, save_every, stride, least
):
    """Every opening, write, sync and rename in turn where only the end is saved; every so many where every step is."""
    at, failed = 1, 0
    while True:
        out = tmp_path / f"out-{at}"
        with monkeypatch.context() as patched:
            faulty = Faulty(patched, at, getattr(errno, error))
            try:
                go(data, out, save_every=save_every)
            except OSError as told:
                failed += 1
                assert f"could not be written ({os.strerror(getattr(errno, error))})" in str(told)
            else:
                if faulty.calls < at:
                    break
        assert not list(out.glob("*.part"))
        assert (
            not (out / "record.json").exists()
            or json.loads((out / "record.json").read_text())["summary"]
        )
        found = newest(out)  # which warns of nothing: there is none that is damaged
        assert found is None or found[1]["position"]["task"] <= 3
        go(data, out)
        assert left(out) == whole
        at += stride
    assert failed >= least


class At(Quiet):
    """Does something after a step, counted over the whole run from 1, or after a task."""

    def __init__(self, do, step=None, task=None):
        self.do, self.at, self.after = do, step, task

    def step(self, task, step, loss):
        if task * STEPS + step == self.at:
            self.do()

    def task(self, task, name, accuracies, seconds):
        if task == self.after:
            self.do()


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("step", range(1, 3 * STEPS + 1))
def test_sigterm_saves_and_the_run_goes_on_as_if_nothing_had_happened(data, tmp_path, whole, step):
    out = tmp_path / "out"
    with pytest.raises(Terminated):
        go(data, out, At(terminate, step), save_every=None)
    assert newest(out)[1]["position"]["task"] * STEPS + newest(out)[1]["position"]["step"] == step
    go(data, out)
    assert left(out) == whole


def test_sigterm_while_many_tasks_are_measured_does_not_wait_for_all_of_them(data, tmp_path, whole):
    out, who = tmp_path / "out", learner()
    plain, calls = who.predict, []

    def predict(x, context=None):
        calls.append(context)
        if len(calls) == 4:  # the first of three tasks after the third
            terminate()
        return plain(x, context)

    who.predict = predict
    with pytest.raises(Terminated):
        go(data, out, who=who)
    assert len(calls) == 4
    assert newest(out)[1]["position"]["ended"] and newest(out)[1]["learner"]["method"] == {
        "ended": 3
    }
    assert go(data, out).accuracy[-1] and left(out) == whole  # the method was not told twice


def test_a_second_sigterm_changes_nothing_and_the_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with stoppable() as stop:
        assert not stop
        terminate()
        terminate()
        assert stop and isinstance(stop.reason, Terminated)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
    ],
)
def test_memory_that_runs_out_is_one_sentence_and_leaves_the_last_checkpoint(
    data, tmp_path, whole, error
):
    def fails():
        raise error

    out = tmp_path / "out"
    with pytest.raises(
        MemoryError,
        match=r"^Memory ran out after step 1 of task 2; checkpoints written before are whole\.",
    ):
        go(data, out, At(fails, step=3))
    # none of the step that failed
    assert checkpoints(out)[0].name == "checkpoint-0001-000000.safetensors"
    go(data, out)
    assert left(out) == whole


def test_other_errors_of_torch_are_shown_as_they_are(data, tmp_path):
    def fails():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        go(data, tmp_path / "out", At(fails, step=3))


@pytest.mark.parametrize("save_every", [0.0, 1e9])
def test_data_that_vanish_are_named_and_what_was_learned_stays(data, tmp_path, whole, save_every):
    lost = data / "t1.npz"
    content = lost.read_bytes()
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=r"t1.npz cannot be read as arrays \(.*[Nn]o such file"):
        go(data, out, At(lost.unlink, task=0), save_every=save_every)
    assert newest(out)[1]["position"]["task"] == 1 and not (out / "record.json").exists()
    lost.write_bytes(content)
    go(data, out)
    assert left(out) == whole


def test_a_clock_that_jumps_changes_nothing(data, tmp_path, whole, monkeypatch):
    times = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: next(times))
    record = go(data, tmp_path / "out")
    monkeypatch.undo()
    assert left(tmp_path / "out") == whole and all(
        0 <= s < 60 for task in record.seconds for s in task.values()
    )


def test_checkpoints_cost_little_by_themselves(data, tmp_path, monkeypatch):
    """Where writing one takes a second, the next is not written before fifty have passed."""
    written, now = [], [0.0]
    plain = checkpoint.save

    def slow(state, path):
        written.append((now[0], state["position"]["task"]))
        now[0] += 1.0
        plain(state, path)

    def later(seconds):
        now[0] += seconds

    monkeypatch.setattr(checkpoint, "save", slow)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Slow(Quiet):
        def step(self, task, step, loss):
            later(20.0)

    go(data, tmp_path / "out", Slow(), save_every=None)
    # after the first task; 60 s later within the third; the last
    assert written == [
        (40.0, 1),
        (121.0, 2),
        (122.0, 3),
    ]


def test_a_finished_run_keeps_its_last_checkpoint_unless_told_not_to(data, tmp_path):
    for keep in (True, False):
        run(
            streams.own(data),
            learner(),
            tmp_path / f"{keep}",
            steps=STEPS,
            batch=5,
            keep=keep,
            save_every=0.0,
        )
    assert [path.name for path in checkpoints(tmp_path / "True")] == [
        "checkpoint-0003-000000.safetensors"
    ]
    assert checkpoints(tmp_path / "False") == []


def test_what_was_known_of_isolated_networks_is_not_forgotten_by_a_stop(data, tmp_path):
    out, alone = tmp_path / "out", [0.5, 0.6, 0.7]
    stream = streams.own(data)
    with pytest.raises(Terminated):
        run(stream, learner(), out, steps=STEPS, batch=5, isolated=alone, progress=At(terminate, 3))
    assert run(stream, learner(), out, steps=STEPS, batch=5).isolated == alone


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("specification"),
        lambda state: state.pop("position"),
        lambda state: state["position"].update(task=9),
        lambda state: state["position"].update(step="x"),
        lambda state: state["found"].update(accuracy=[]),
        lambda state: state["learner"]["optimizer"].update(param_groups=[]),
        lambda state: state["learner"].update(generator=torch.zeros(3, dtype=torch.uint8)),
        lambda state: state["learner"]["model"].popitem(),
    ],
)
def test_a_checkpoint_that_is_whole_and_does_not_fit_is_refused_in_a_sentence(
    data, tmp_path, spoil
):
    out = tmp_path / "out"
    with pytest.raises(Terminated):
        go(data, out, At(terminate, 4), save_every=1e9)
    (path,) = checkpoints(out)
    state = checkpoint.load(path)
    spoil(state)
    checkpoint.save(state, path)
    before = path.read_bytes()
    with pytest.raises(
        ValueError,
        match=rf"{path.name} is not a checkpoint of this run( \(.+\))?: delete it to start anew\.$",
    ):
        go(data, out)
    assert path.read_bytes() == before
