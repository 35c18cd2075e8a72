"""The trace of a run: beside its record, and exact however often the run was stopped."""

from __future__ import annotations

import os
import shutil
import signal

import numpy as np
import pytest

from gateon import cli
from gateon.runs.progress import Quiet
from gateon.runs.record import TRACE, Record
from gateon.runs.specified import run_specification
from gateon.runs.stopping import Interrupted
from gateon.tracing.trace import QUANTITIES
from specified import specified

SMALL = {"data": "mnist-5k", "hidden": (12,), "steps": 12, "batch": 30, "threads": 1}


def asked(tasks=3, **options):
    return specified("permuted-mnist", **{**SMALL, "tasks": tasks, **options})


class Stop(Quiet):
    """Presses Ctrl-C at a step of a task."""

    def __init__(self, task, step):
        self.at = task, step

    def step(self, task, step, loss):
        if (task, step) == self.at:
            os.kill(os.getpid(), signal.SIGINT)


def go(out, *, trace=("*",), every=5, progress=None, **options):
    return run_specification(
        asked(**options), out, trace=trace, trace_every=every, progress=progress
    )


def same(one, other):
    assert one.starts == other.starts and np.array_equal(one.steps, other.steps)
    assert np.array_equal(one.contexts, other.contexts)
    for quantity in QUANTITIES:
        for site in other.sites:
            assert np.array_equal(
                *(getattr(trace, quantity)[site] for trace in (one, other)), equal_nan=True
            )


@pytest.mark.parametrize("method", ["n-gateon", "p-gateon"])
def test_an_interrupted_run_has_the_trace_of_an_undisturbed_one(tmp_path, method):
    whole = go(tmp_path / "whole", method=method).trace
    for at in ((0, 7), (2, 1)):
        with pytest.raises(Interrupted):
            go(tmp_path / "cut", method=method, progress=Stop(*at))
    # As gateon resume: it goes on with the trace that is there.
    resumed = run_specification(asked(method=method), tmp_path / "cut")
    same(resumed.trace, whole)
    assert whole.steps.tolist() == list(range(0, 36, 5)) and whole.starts == [0, 12, 24]
    same(Record.load(tmp_path / "cut" / "record.json").trace, whole)


def test_a_killed_run_whose_trace_is_ahead_of_its_checkpoint_goes_on_exactly(tmp_path):
    whole = go(tmp_path / "whole").trace
    with pytest.raises(Interrupted):
        go(tmp_path / "cut", progress=Stop(1, 3))
    shutil.copy(tmp_path / "whole" / TRACE, tmp_path / "cut" / TRACE)
    same(go(tmp_path / "cut").trace, whole)


def test_a_run_with_more_tasks_goes_on_with_its_trace(tmp_path):
    go(tmp_path / "run", tasks=2)
    longer = run_specification(asked(tasks=3), tmp_path / "run").trace
    same(longer, go(tmp_path / "whole", tasks=3).trace)


def test_a_run_without_a_trace_has_none_and_learns_the_same(tmp_path):
    plain, traced = go(tmp_path / "plain", trace=None, every=None), go(tmp_path / "traced")
    assert plain.trace is None and not (tmp_path / "plain" / TRACE).exists()
    assert plain.accuracy == traced.accuracy and plain.availability == traced.availability


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        ({}, {"every": 3}, "is traced already, every 5 steps at 1"),
        ({"method": "finetune"}, None, "finetune has no gates"),
        ({"trace": ("nothing",)}, None, "No site matches 'nothing'"),
        ({"trace": None}, None, "do nothing without a trace"),
    ],
)
def test_a_trace_that_cannot_be_is_one_sentence(tmp_path, first, then, words):
    if then is not None:
        with pytest.raises(Interrupted):
            go(tmp_path / "run", progress=Stop(1, 3), **first)
    with pytest.raises(ValueError, match=words):
        go(tmp_path / "run", **first | (then or {}))


def test_a_finished_run_cannot_be_traced_afterwards(tmp_path):
    go(tmp_path / "run", trace=None, every=None, tasks=1)
    with pytest.raises(ValueError, match="finished without a trace"):
        go(tmp_path / "run", tasks=1)


def test_a_trace_needs_a_directory():
    from gateon import run

    stream = asked().make_stream()
    with pytest.raises(ValueError, match="say which with out="):
        run(stream, asked().make_learner(stream), steps=2, batch=10, trace="*")


def test_the_program_traces_runs_and_compared_methods_that_have_gates(tmp_path, capsys):
    words = "permuted-mnist --data mnist-5k --tasks 2 --steps 4 --batch 20 --hidden 8 --threads 1"
    run = [*words.split(), "--quiet", "--out"]
    cli.main(["run", "--trace", "1", "--trace-every", "2", *run, str(tmp_path / "run")])
    assert Record.load(tmp_path / "run" / "record.json").trace.steps.tolist() == [0, 2, 4, 6]
    methods = ["--methods", "n-gateon,finetune", "--trace"]
    cli.main(["compare", *run, str(tmp_path / "compare"), *methods])
    found = {path.parent.name for path in (tmp_path / "compare").rglob(TRACE)}
    assert found == {"n-gateon-0"}
    capsys.readouterr()
    cli.main(["inspect", str(tmp_path / "run")])
    assert "Trace of 8 units of 1: 4 steps, every 2" in capsys.readouterr().out
