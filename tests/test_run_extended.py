"""Runs that were finished: their learner comes back, and they go on with more tasks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
import torch

from gateon import ContextDetector, GateON, Learner, cli, run, streams
from gateon.models import mlp
from gateon.networks.heads import with_task_heads
from gateon.runs.folder import CheckpointWarning, checkpoints
from gateon.runs.progress import Quiet
from gateon.runs.record import Record
from gateon.runs.specified import learn, run_specification
from gateon.runs.stopping import Interrupted
from gateon.storage import checkpoint
from specified import dotted, specified

SMALL = {"data": "mnist-5k", "hidden": (12,), "steps": 4, "batch": 30, "threads": 1}
STEPS = SMALL["steps"]


def asked(tasks, stream="permuted-mnist", **options):
    return specified(stream, **{**SMALL, "tasks": tasks, **options})


def left(out):
    """What a run left, but for times and the environment."""
    record = json.loads((out / "record.json").read_text())
    del record["seconds"], record["environment"]
    state = checkpoint.load(checkpoints(out)[0])
    del state["times"]
    return record, state


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (one != one and other != other)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


class Stop(Quiet):
    """Presses Ctrl-C at a step of a task."""

    def __init__(self, task, step):
        self.at = task, step

    def step(self, task, step, loss):
        if (task, step) == self.at:
            os.kill(os.getpid(), signal.SIGINT)


# The learner comes back


def made(lr=0.05, hidden=12, **options):
    torch.manual_seed(0)
    optimizer = partial(torch.optim.Adam, lr=lr)
    return Learner(mlp(784, (hidden,), 10), optimizer=optimizer, method=GateON(), **options)


def permuted(tasks):
    return streams.permuted_mnist(tasks, data="mnist-5k")


PLAN = {"steps": STEPS, "batch": 30}


def test_the_learner_of_a_finished_run_is_trained_when_run_returns(tmp_path):
    first, later = made(), made()
    record = run(permuted(2), first, tmp_path, **PLAN)
    assert asdict(run(permuted(2), later, tmp_path, **PLAN)) == asdict(record)
    assert same(later.state_dict(), first.state_dict())
    test = permuted(2)[1].test
    right = (later.predict(test.x, context=1).argmax(1) == test.y).double().mean().item()
    assert right == record.accuracy[1][1]


@pytest.mark.parametrize("method", ["isolated", "zoo", "ewc", "hat", "dendrites"])
def test_so_is_any_other_learner(tmp_path, method):
    wanted = asked(2, method=method)
    stream = wanted.make_stream()
    first, later = (wanted.make_learner(stream) for _ in range(2))
    learn(wanted, stream, first, tmp_path)
    learn(wanted, stream, later, tmp_path)
    assert same(later.state_dict(), first.state_dict())


def test_where_the_checkpoint_was_not_kept_one_sentence_says_so(tmp_path):
    run(permuted(2), made(), tmp_path, **PLAN, keep=False)
    with pytest.warns(CheckpointWarning, match=r"has not learned its tasks: delete record.json"):
        record = run(permuted(2), made(), tmp_path, **PLAN)
    assert len(record.tasks) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(permuted(2), made(), tmp_path, **PLAN, restore=False)


def test_a_checkpoint_that_fits_no_more_is_a_sentence(tmp_path):
    run(permuted(2), made(), tmp_path, **PLAN)
    path = checkpoints(tmp_path)[0]
    state = checkpoint.load(path)
    state["learner"]["model"] = {}
    checkpoint.save(state, path)
    with pytest.raises(ValueError, match="does not fit this learner"):
        run(permuted(2), made(), tmp_path, **PLAN)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="is damaged or not a gateon checkpoint"):
        run(permuted(2), made(), tmp_path, **PLAN)


# More tasks


CASES = {
    "n-gateon": {"method": "n-gateon"},
    "p-gateon": {"method": "p-gateon", "curves": 2},
    "finetune": {"method": "finetune", "evaluate": 2},
    "ewc": {"method": "ewc", "evaluate": "last"},
    "isolated": {"method": "isolated", "evaluate": "last"},
    "zoo": {"method": "zoo"},
    "inferred": {"contexts": "inferred", "evaluate": 3},
    "rotated": {"stream": "rotated-mnist"},
    "split": {"stream": "split-mnist", "epochs": 1, "steps": None, "batch": 100},
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_goes_on_is_the_run_that_had_more_tasks_from_the_start(tmp_path, case):
    short, whole = tmp_path / "short", tmp_path / "whole"
    run_specification(asked(2, **CASES[case]), short)
    run_specification(asked(4, **CASES[case]), short)
    run_specification(asked(4, **CASES[case]), whole)
    assert same(left(short), left(whole))
    assert [path.name for path in checkpoints(short)] == ["checkpoint-0004-000000.safetensors"]


def test_tasks_that_return_once_more_are_more_tasks(tmp_path):
    for repeats in (1, 2):
        run_specification(asked(2, repeats=repeats), tmp_path / "short")
    run_specification(asked(2, repeats=2), tmp_path / "whole")
    assert same(left(tmp_path / "short"), left(tmp_path / "whole"))


@pytest.mark.parametrize(
    "name", ["permuted-mnist", "rotated-mnist", "shuffled-mnist", "split-mnist"]
)
def test_streams_begin_alike_however_many_tasks_they_have(name):
    few, many = (streams.open(name, tasks=n, data="mnist-5k") for n in (2, 7))
    assert [few.fingerprint(k) for k in range(2)] == [many.fingerprint(k) for k in range(2)]


@pytest.mark.parametrize("contexts", [None, ContextDetector])
def test_from_python_too(tmp_path, contexts):
    def learner():
        return made(contexts=contexts and contexts())

    run(permuted(2), learner(), tmp_path / "short", **PLAN)
    later, whole = learner(), learner()
    run(permuted(4), later, tmp_path / "short", **PLAN)
    run(permuted(4), whole, tmp_path / "whole", **PLAN)
    assert same(left(tmp_path / "short"), left(tmp_path / "whole"))
    assert same(later.state_dict(), whole.state_dict())


@pytest.mark.parametrize("step", [1, STEPS])
def test_stopped_in_the_middle_it_goes_on_and_the_first_run_is_still_there(tmp_path, step):
    out = tmp_path / "short"
    first = made()
    before = run(permuted(2), first, out, **PLAN)
    with pytest.raises(Interrupted):
        run(permuted(4), made(), out, **PLAN, progress=Stop(3, step), save_every=0.0)
    again = made()
    assert asdict(run(permuted(2), again, out, **PLAN)) == asdict(before)
    assert same(again.state_dict(), first.state_dict())
    run(permuted(4), made(), out, **PLAN)
    run(permuted(4), made(), tmp_path / "whole", **PLAN)
    assert same(left(out), left(tmp_path / "whole"))


def test_an_unfinished_run_may_be_given_more_tasks_or_fewer(tmp_path):
    for tasks in (3, 5):
        out = tmp_path / str(tasks)
        with pytest.raises(Interrupted):
            run_specification(asked(4), out, progress=Stop(1, 2))
        run_specification(asked(tasks), out)
        run_specification(asked(tasks), tmp_path / f"whole {tasks}")
        assert same(left(out), left(tmp_path / f"whole {tasks}"))


DIES = """
import os, signal, sys
from pathlib import Path
from gateon.runs.progress import Quiet
from gateon.runs.specification import Specification
from gateon.runs.specified import learn

class Dies(Quiet):
    def step(self, task, step, loss):
        if (task, step) == (3, 2):
            os.kill(os.getpid(), signal.SIGKILL)

asked = Specification.load(Path(sys.argv[1]))
stream = asked.make_stream()
learn(asked, stream, asked.make_learner(stream), Path(sys.argv[2]), progress=Dies(), save_every=0.0)
"""


def test_killed_in_the_middle_the_program_goes_on(tmp_path, capsys):
    out = tmp_path / "short"
    words = ["run", "permuted-mnist", "--data", "mnist-5k", "--hidden", "12", "--batch", "30"]
    words += ["--steps", "4", "--threads", "1", "--quiet"]
    assert cli.main([*words, "--tasks", "2", "--out", str(out)]) == 0
    asked(5).save(tmp_path / "run.toml")
    script = [sys.executable, "-c", DIES, str(tmp_path / "run.toml"), str(out)]
    assert subprocess.run(script).returncode == -signal.SIGKILL
    names = [path.name for path in checkpoints(out)]
    assert names == [f"checkpoint-000{k}-00000{s}.safetensors" for k, s in ((3, 1), (3, 0), (2, 0))]
    assert len(Record.load(out / "record.json").tasks) == 2
    capsys.readouterr()
    assert cli.main(["inspect", str(out)]) == 0
    assert "unfinished: gateon resume" in capsys.readouterr().out
    shutil.copytree(out, tmp_path / "resumed")
    assert cli.main([*words, "--tasks", "5", "--out", str(out)]) == 0
    assert cli.main(["resume", str(tmp_path / "resumed"), "--quiet"]) == 0
    assert cli.main([*words, "--tasks", "5", "--out", str(tmp_path / "whole")]) == 0
    for name in ("short", "resumed"):
        assert same(left(tmp_path / name), left(tmp_path / "whole"))


# What is refused


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"heads": "per-task"}, "the network has a head for every task from the start"),
        ({"method": "dendrites"}, "dendrites takes its segments from the number of tasks"),
    ],
)
def test_what_depends_on_the_number_of_tasks_is_refused(tmp_path, options, reason):
    run_specification(asked(2, **options), tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"{reason}: .*nothing was changed"):
        run_specification(asked(3, **options), tmp_path)
    assert contents(tmp_path) == before


def test_told_its_segments_dendrites_goes_on(tmp_path):
    options = {"method": "dendrites", "segments": 3}
    for tasks in (2, 3):
        run_specification(asked(tasks, **options), tmp_path / "short")
    run_specification(asked(3, **options), tmp_path / "whole")
    assert same(left(tmp_path / "short"), left(tmp_path / "whole"))


def test_fewer_tasks_than_are_done_are_refused(tmp_path):
    run_specification(asked(3), tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="with 3 tasks done: ask for 3 or more, or choose another"):
        run_specification(asked(2), tmp_path)
    with pytest.raises(Interrupted):
        run_specification(asked(5), tmp_path, progress=Stop(4, 1))
    with pytest.raises(ValueError, match="with more tasks, 4 of them done: ask for more than 4"):
        run_specification(asked(4), tmp_path)
    assert (tmp_path / "record.json").read_bytes() == before["record.json"]


def test_without_its_last_checkpoint_a_run_cannot_go_on(tmp_path):
    run(permuted(2), made(), tmp_path, **PLAN, keep=False)
    with pytest.raises(ValueError, match="without its last checkpoint, so that it cannot go on"):
        run(permuted(3), made(), tmp_path, **PLAN)


@pytest.mark.parametrize("change", [{"seed": 1}, {"lr": 0.1}, {"repeats": 2}, {"steps": 5}])
def test_nothing_else_may_differ(tmp_path, change):
    run_specification(asked(2), tmp_path)
    (name,) = dotted("permuted-mnist", **change)
    with pytest.raises(ValueError, match=f"holds another run, with {name} "):
        run_specification(asked(3, **change), tmp_path)


def test_blurred_tasks_and_learners_with_other_heads_are_refused(tmp_path):
    run(streams.blurred(permuted(2)), made(), tmp_path / "blurred", **PLAN)
    with pytest.raises(ValueError, match="holds another run, with stream"):
        run(streams.blurred(permuted(3)), made(), tmp_path / "blurred", **PLAN)

    def with_heads(tasks):
        torch.manual_seed(0)
        model = with_task_heads(mlp(784, (12,), 10), tasks)
        return Learner(model, optimizer=partial(torch.optim.SGD, lr=0.1), method=GateON())

    run(permuted(2), with_heads(2), tmp_path / "heads", **PLAN)
    before = contents(tmp_path / "heads")
    with pytest.raises(ValueError, match="give the learner the arguments it had there"):
        run(permuted(4), with_heads(4), tmp_path / "heads", **PLAN)
    assert contents(tmp_path / "heads") == before


def test_a_copied_directory_goes_on_alike(tmp_path):
    run_specification(asked(2), tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for name in ("one", "two"):
        run_specification(asked(3), Path(tmp_path / name))
    assert same(left(tmp_path / "one"), left(tmp_path / "two"))
