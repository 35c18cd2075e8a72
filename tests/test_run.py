"""Runs: what is measured and when, what is written, and that a run that was stopped goes on as if it had not been."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
import torch

from gateon import Finetune, Learner, streams
from gateon.methods.registry import METHODS as ALL_METHODS
from gateon.methods.registry import needs
from gateon.runs import metrics
from gateon.runs.batches import batches
from gateon.runs.folder import CheckpointWarning, checkpoints
from gateon.runs.record import MACRO_F1, Record
from gateon.runs.run import Interrupted, Quiet, run
from gateon.runs.specified import isolated_record, run_specification
from gateon.storage import checkpoint
from gateon.streams import Split, Stream, Task
from specified import dotted, specified

METHODS = ("n-gateon", "p-gateon", "finetune", "isolated")
OTHERS = [name for name in ALL_METHODS if name not in METHODS and "language" not in needs(name)]
STEPS = 6


@pytest.fixture
def data(tmp_path):
    return write_own(tmp_path / "data")


def write_own(folder, tasks=3, rows=60, classes=3, seed=0):
    """Tasks of a few easy clouds of points, whose labels differ from task to task."""
    folder.mkdir()
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(classes, 6)) * 2
    for k in range(tasks):
        arrays = {}
        for part in ("train", "test"):
            y = np.arange(rows) % classes
            arrays |= {
                f"x_{part}": (centres[(y + k) % classes] + draw.normal(size=(rows, 6))).astype(
                    np.float32
                ),
                f"y_{part}": y,
            }
        np.savez(folder / f"task{k}.npz", **arrays)
    return folder


def specification(data, **options):
    small = {"hidden": (8,), "steps": STEPS, "batch": 20, "threads": 1}
    return specified(f"own:{data}", **small | options)


def go(asked, out=None, progress=None, **options):
    """Run it; the record and the learner."""
    stream = asked.make_stream()
    learner = asked.make_learner(stream)
    given = {
        "steps": asked.training.steps,
        "batch": asked.training.batch,
        "seed": asked.seed,
        "evaluate": asked.measuring.evaluate,
        "curves": asked.measuring.curves,
    }
    given |= {"part": asked.measuring.part, "specification": asked.to_dict(), "progress": progress}
    return run(stream, learner, out, **given | options), learner


def without_times(record):
    content = json.loads(json.dumps(asdict(record)))
    content["environment"].pop("time")
    return content | {"seconds": [sorted(task) for task in content["seconds"]]}


def same_state(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_state(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same_state, one, other))
    return one == other or (one != one and other != other)  # NaN: not known yet


class Stop(Quiet):
    """Presses Ctrl-C during a step, counted over the whole run from 1, or after a task."""

    def __init__(self, at=None, after_task=None):
        self.at, self.after_task = at, after_task

    def begin(self, name, steps, at):
        self.steps = steps

    def step(self, task, step, loss):
        if self.at is not None and sum(self.steps[:task]) + step == self.at:
            os.kill(os.getpid(), signal.SIGINT)

    def task(self, task, name, accuracies, seconds):
        if task == self.after_task:
            os.kill(os.getpid(), signal.SIGINT)


# What a run leaves


def test_equal_seeds_give_equal_records_but_for_times(data, tmp_path):
    asked = specification(data, curves=2)
    first, second = (go(asked, tmp_path / name)[0] for name in ("a", "b"))
    assert without_times(first) == without_times(second)
    assert without_times(go(specification(data, curves=2, seed=1))[0]) != without_times(first)


def test_the_record_on_disk_is_the_record_returned_and_has_all_the_schema_says(data, tmp_path):
    record, _ = go(specification(data), tmp_path / "out")
    assert without_times(Record.load(tmp_path / "out" / "record.json")) == without_times(record)
    content = json.loads((tmp_path / "out" / "record.json").read_text())
    of_both = [
        [row + [np.nan] * (3 - len(row)) for row in rows]
        for rows in (record.accuracy, record.macro_f1)
    ]
    of_f1 = {MACRO_F1[name]: value for name, value in metrics.summary(of_both[1]).items()}
    assert content["summary"] == metrics.summary(of_both[0]) | of_f1
    assert (
        content["schema"] == 3
        and content["specification"]["seed"] == 0
        and len(content["data"]["sha256"]) == 64
    )
    assert record.tasks == ["task0", "task1", "task2"] and record.contexts == [0, 1, 2]
    assert (
        [len(row) for row in record.accuracy] == [len(row) for row in record.macro_f1] == [1, 2, 3]
    )
    assert all(task["train"] > 0 and task["evaluate"] > 0 for task in record.seconds)
    assert (
        all(0 < share < 1 for task in record.density for share in task.values())
        and record.density[0]
    )
    assert (
        all(
            set(site) == {"frozen", "room"}
            for task in record.availability
            for site in task.values()
        )
        and record.availability[0]
    )
    assert (
        record.environment["threads"] == 1
        and record.environment["versions"]["torch"] == torch.__version__
    )
    left = [".lock", "checkpoint-0003-000000.safetensors", "record.json"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == left


def test_figures_are_those_of_the_learner_on_the_test_data(data):
    record, learner = go(specification(data, steps=30, hidden=(60,), lr=0.02))
    stream = streams.own(data)
    for j in range(3):
        test = stream[j].test
        predicted = learner.predict(test.x, context=j).argmax(1)
        assert record.accuracy[-1][j] == (predicted == test.y).double().mean().item()
        assert record.macro_f1[-1][j] == metrics.macro_f1(test.y, predicted, 3)
    assert record.summary["immediate_accuracy"] > 0.7  # it learns at all
    assert record.macro_f1 != record.accuracy


def test_validation_data_are_measured_where_asked_for(data):
    record, learner = go(specification(data, part="validation"))
    validation = streams.own(data)[2].validation
    assert record.part == "validation"
    assert (
        record.accuracy[-1][2]
        == (learner.predict(validation.x, 2).argmax(1) == validation.y).double().mean().item()
    )


@pytest.mark.parametrize(
    ("evaluate", "measured"),
    [
        ("all", ["1", "11", "111", "1111"]),
        ("last", ["1", "01", "001", "1111"]),
        (2, ["1", "11", "001", "1111"]),
    ],
)
def test_schedules_measure_the_own_task_always_and_all_at_the_end(tmp_path, evaluate, measured):
    data = write_own(tmp_path / "four", tasks=4)
    record, _ = go(specification(data, evaluate=evaluate, steps=2))
    assert [
        "".join("01"[value is not None] for value in row) for row in record.accuracy
    ] == measured
    assert [[a is None for a in row] for row in record.accuracy] == [
        [f is None for f in row] for row in record.macro_f1
    ]
    assert 0 <= record.summary["final_accuracy"] <= 1


def test_curves_follow_the_task_being_learned_and_end_with_its_last_step(data):
    record, _ = go(specification(data, curves=4, evaluate="last"))
    assert [[step for step, _ in curve] for curve in record.curves] == [[4, 6]] * 3
    assert [curve[-1][1] for curve in record.curves] == [record.accuracy[k][k] for k in range(3)]
    assert (
        without_times(record)["accuracy"]
        == without_times(go(specification(data, evaluate="last"))[0])["accuracy"]
    )
    assert go(specification(data))[0].curves == [[], [], []]


def test_a_task_that_returns_is_learned_in_its_old_context(data):
    asked = specification(data)
    stream = streams.recurring(asked.make_stream(), [0, 1, 0, 2, 1])
    learner = asked.make_learner(stream)
    record = run(stream, learner, steps=3, batch=20)
    assert record.contexts == [0, 1, 0, 2, 1]
    assert learner.method.gates.contexts == 3
    assert record.accuracy[-1][0] == record.accuracy[-1][2]  # one context, one test set


def test_steps_go_through_epochs_without_replacement_and_depend_on_the_seed_and_the_step_alone():
    split = Split(torch.zeros(10, 1), torch.zeros(10, dtype=torch.long))
    rows = [batch.tolist() for batch in batches(split, 5, 6, (0, 1), 0)]
    epochs = [rows[n] + rows[n + 1] for n in (0, 2, 4)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs) and epochs[0] != epochs[1]
    assert [batch.tolist() for batch in batches(split, 5, 6, (0, 1), 3)] == rows[3:]
    assert [batch.tolist() for batch in batches(split, 5, 6, (1, 1), 0)] != rows


@pytest.mark.parametrize(("steps", "batch"), [(5, 2), (3, 2), (8, 4)])
def test_ordered_data_are_presented_once_as_time_passes(steps, batch):
    split = Split(torch.zeros(10, 1), torch.zeros(10, dtype=torch.long), ordered=True)
    rows = torch.cat(list(batches(split, batch, steps, (0, 0), 0))).tolist()
    assert rows == sorted(rows) and rows[0] == 0 and len(rows) == steps * batch
    assert rows == [j * 10 // (steps * batch) for j in range(steps * batch)]
    assert torch.cat(list(batches(split, batch, steps, (0, 0), 2))).tolist() == rows[2 * batch :]


def test_a_blurred_stream_reaches_the_learner_in_its_order(data):
    stream = streams.blurred(streams.own(data), width=0.5)
    seen = []

    class Watch:
        separate, description, contexts = False, {"method": "watch"}, None
        name, model = "watch", torch.nn.Linear(1, 1)
        expect = staticmethod(lambda outline: None)
        end_task = staticmethod(lambda task, data: None)
        predict = staticmethod(lambda x, context: torch.zeros(len(x), 3))

        def observe(self, x, y, context):
            seen.append(x)
            return type("Seen", (), {"loss": 0.0})()

    run(stream, Watch(), steps=3, batch=18)
    assert torch.equal(torch.cat(seen[3:6]), stream[1].train.x)


# Isolated networks


def test_isolated_accuracies_run_once_and_give_the_deviation(data, tmp_path):
    record = run_specification(specification(data), tmp_path / "n", isolated=True)
    (folder,) = tmp_path.glob("isolated-*")
    alone = Record.load(folder / "record.json")
    assert record.isolated == [alone.accuracy[k][k] for k in range(3)]
    assert record.summary["accuracy_deviation"] == metrics.accuracy_deviation(
        np.tril(_full(record)), record.isolated
    )
    before = (folder / "record.json").stat().st_mtime_ns
    other = run_specification(
        specification(data, method="p-gateon", rate=0.02, evaluate="last"),
        tmp_path / "p",
        isolated=True,
    )
    assert (
        other.isolated == record.isolated and (folder / "record.json").stat().st_mtime_ns == before
    )
    run_specification(specification(data, hidden=(9,)), tmp_path / "wide", isolated=True)
    assert len(list(tmp_path.glob("isolated-*"))) == 2


def _full(record):
    return [row + [0.0] * (len(record.accuracy) - len(row)) for row in record.accuracy]


def test_every_isolated_network_starts_anew(data):
    """It scores on a task what a fresh network that has only seen this task does."""
    asked = specification(data, method="isolated", steps=20)
    record, _ = go(asked)
    stream = asked.make_stream()
    fresh = specification(data, method="finetune", steps=20).make_learner(stream)
    task = stream[2]
    for rows in batches(task.train, 20, 20, (0, 2), 0):
        fresh.observe(task.train.x[rows], task.train.y[rows], context=2)
    assert (
        record.accuracy[2][2]
        == (fresh.predict(task.test.x).argmax(1) == task.test.y).double().mean().item()
    )
    assert [row[0] for row in record.accuracy] == [
        record.accuracy[0][0]
    ] * 3  # its own network cannot change any more


def test_asking_for_the_deviation_of_a_finished_run_adds_it_without_training(data, tmp_path):
    without = run_specification(specification(data), tmp_path / "n")
    assert "accuracy_deviation" not in without.summary
    record = run_specification(specification(data), tmp_path / "n", isolated=True)
    assert (
        record.seconds == without.seconds
        and record.isolated == isolated_record(specification(data), tmp_path).immediate()
    )
    assert Record.load(tmp_path / "n" / "record.json").isolated == record.isolated


def test_a_setting_that_cannot_be_made_is_found_before_the_isolated_networks_run(data, tmp_path):
    with pytest.raises(ValueError, match="density"):
        run_specification(specification(data, density=2.0), tmp_path / "n", isolated=True)
    assert not list(tmp_path.glob("isolated-*"))


# Stopping and going on


@pytest.mark.parametrize("at", [1, 3, STEPS, STEPS + 1, 2 * STEPS, 3 * STEPS - 1, 3 * STEPS])
@pytest.mark.parametrize("method", METHODS)
def test_a_run_stopped_anywhere_goes_on_as_if_it_had_not_been(data, tmp_path, method, at):
    asked = specification(data, method=method, curves=4)
    whole, learner = go(asked)
    with pytest.raises(Interrupted):
        go(asked, tmp_path / "out", Stop(at))
    assert not (tmp_path / "out" / "record.json").exists()
    resumed, again = go(asked, tmp_path / "out")
    assert without_times(resumed) == without_times(whole)
    assert same_state(again.state_dict(), learner.state_dict())


@pytest.mark.parametrize("method", [*OTHERS, "inferred"])
def test_so_does_one_of_any_other_method(data, tmp_path, method):
    named = {"contexts": "inferred"} if method == "inferred" else {"method": method}
    asked = specification(data, **named)
    whole, learner = go(asked)
    for at in (2, STEPS + 3, 2 * STEPS):
        with pytest.raises(Interrupted):
            go(asked, tmp_path / "out", Stop(at))
    resumed, again = go(asked, tmp_path / "out")
    assert without_times(resumed) == without_times(whole)
    assert same_state(again.state_dict(), learner.state_dict())


def test_losses_and_suspicions_are_kept_where_contexts_are_inferred(data):
    record, _ = go(specification(data, contexts="inferred", steps=100))
    calm = [step for step, _, suspected in record.losses[0] if not suspected]
    assert calm == list(range(0, 100, 2)), "some of them, evenly"
    assert record.switches and all(loss > 0 for task in record.losses for _, loss, _ in task)
    for task, step, _ in record.switches:
        suspected = [at for at, _, is_suspected in record.losses[task] if is_suspected]
        assert {step - 2, step - 1} <= set(suspected), "the window before it was settled"
    assert go(specification(data))[0].losses == [[], [], []]


@pytest.mark.parametrize("method", METHODS)
def test_a_run_stopped_after_every_step_is_the_same_run(data, tmp_path, method):
    asked = specification(
        data, method=method, steps=3, precision="bf16" if method == "p-gateon" else "float32"
    )
    whole, learner = go(asked)
    for at in range(1, 10):
        with pytest.raises(Interrupted):
            go(asked, tmp_path / "out", Stop(at))
    resumed, again = go(asked, tmp_path / "out")
    assert without_times(resumed) == without_times(whole)
    assert same_state(again.state_dict(), learner.state_dict())


@pytest.mark.parametrize("after", [0, 1])
def test_a_run_stopped_while_it_measures_goes_on(data, tmp_path, after):
    asked = specification(data)
    with pytest.raises(Interrupted):
        go(asked, tmp_path / "out", Stop(after_task=after))
    assert without_times(go(asked, tmp_path / "out")[0]) == without_times(go(asked)[0])


def test_stopping_after_the_last_step_keeps_the_record_and_still_stops(data, tmp_path):
    asked = specification(data)
    with pytest.raises(Interrupted):  # whatever would come after this run must not begin
        go(asked, tmp_path / "out", Stop(after_task=2))
    assert without_times(Record.load(tmp_path / "out" / "record.json")) == without_times(
        go(asked)[0]
    )


def test_quick_ctrl_cs_are_one_and_lose_nothing(data, tmp_path):
    class Thrice(Quiet):
        def step(self, task, step, loss):
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)  # a job in the background ignores it from the start
    with pytest.raises(Interrupted):
        go(specification(data), tmp_path / "out", Thrice())
    assert signal.getsignal(signal.SIGINT) is before
    assert checkpoints(tmp_path / "out")[0].name == "checkpoint-0000-000001.safetensors"


def test_a_second_ctrl_c_that_comes_later_does_not_wait(data, tmp_path, monkeypatch):
    class Later(Quiet):
        def step(self, task, step, loss):
            os.kill(os.getpid(), signal.SIGINT)
            monkeypatch.setattr("gateon.runs.stopping.PATIENCE", -1.0)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as stopped:
        go(specification(data), tmp_path / "out", Later())
    assert not isinstance(stopped.value, Interrupted)


def test_whoever_watches_is_told_of_the_end_however_it_comes(data, tmp_path):
    class Ends(Stop):
        ends = 0

        def end(self):
            self.ends += 1

    for watch in (Ends(at=4), Ends()):
        with suppress(Interrupted):
            go(specification(data), tmp_path / "out", watch)
        assert watch.ends == 1


def test_a_finished_run_returns_at_once(data, tmp_path):
    class Never(Quiet):
        def begin(self, name, steps, at):
            raise AssertionError("it began")

    asked = specification(data)
    first, _ = go(asked, tmp_path / "out")
    before = (tmp_path / "out" / "record.json").stat().st_mtime_ns
    assert asdict(go(asked, tmp_path / "out", Never())[0]) == asdict(first)
    assert (tmp_path / "out" / "record.json").stat().st_mtime_ns == before


def test_checkpoints_within_a_task_come_by_the_clock(data, tmp_path):
    class Dies(Quiet):
        def step(self, task, step, loss):
            if (task, step) == (1, 4):
                raise MemoryError

    asked = specification(data)
    with pytest.raises(MemoryError):
        go(asked, tmp_path / "out", Dies(), save_every=0.0)
    kept = checkpoints(tmp_path / "out")
    assert [path.name for path in kept] == [
        "checkpoint-0001-000003.safetensors",
        "checkpoint-0001-000002.safetensors",
    ]
    position = checkpoint.load(kept[0])["position"]
    assert (position["task"], position["step"]) == (1, 3)
    assert without_times(go(asked, tmp_path / "out")[0]) == without_times(go(asked)[0])


def test_a_killed_process_goes_on_and_nobody_else_runs_in_its_directory(data, tmp_path):
    asked = specification(data, steps=400)
    asked.save(tmp_path / "run.toml")
    out = tmp_path / "out"
    words = [
        sys.executable,
        "-m",
        "gateon.cli",
        "run",
        str(tmp_path / "run.toml"),
        "--out",
        str(out),
        "--quiet",
    ]
    process = subprocess.Popen(words)
    try:
        deadline = time.monotonic() + 60
        while not list(out.glob("checkpoint-*.safetensors")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.002)
        with pytest.raises(
            ValueError,
            match=rf"Another process is running in .*out \(process {process.pid} on .+, since 20.+\): wait",
        ):
            go(asked, out)
    finally:
        process.kill()
        process.wait()
    assert not (out / "record.json").exists()
    resumed, again = go(asked, out)
    whole, learner = go(asked)
    assert without_times(resumed) == without_times(whole)
    assert same_state(again.state_dict(), learner.state_dict())


# What is refused, and what it leaves as it was


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("stopped", [True, False], ids=["unfinished", "finished"])
@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"hidden": (9,)}, {"rate": 0.5}, {"steps": 7}, {"method": "finetune"}]
)
def test_another_specification_is_refused_and_nothing_is_changed(data, tmp_path, stopped, change):
    out = tmp_path / "out"
    with suppress(Interrupted):
        go(specification(data), out, Stop(8 if stopped else None))
    before = contents(out)
    (name,) = dotted("own:data", **change)
    with pytest.raises(ValueError, match=f"holds another run, with {name} .*nothing was changed"):
        go(specification(data, **change), out)
    assert contents(out) == before


@pytest.mark.parametrize("stopped", [True, False], ids=["unfinished", "finished"])
def test_other_data_under_the_same_name_are_refused(data, tmp_path, stopped):
    out = tmp_path / "out"
    with suppress(Interrupted):
        go(specification(data), out, Stop(8 if stopped else None))
    before = contents(out)
    data.rename(tmp_path / "old")
    write_own(data, seed=1)
    with pytest.raises(
        ValueError, match=r"holds a run on other data, own from .*nothing was changed"
    ):
        go(specification(data), out)
    assert contents(out) == before


def test_without_a_specification_network_and_optimizer_tell_runs_apart(data, tmp_path):
    stream = streams.own(data)

    def learner(lr=0.1):
        torch.manual_seed(0)
        return Learner(
            torch.nn.Linear(6, 3), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr)
        )

    first = run(stream, learner(), tmp_path / "out", steps=2, batch=20)
    assert without_times(
        run(stream, learner(), tmp_path / "out", steps=2, batch=20)
    ) == without_times(first)
    with pytest.raises(ValueError, match="holds another run, with optimizer"):
        run(stream, learner(lr=0.2), tmp_path / "out", steps=2, batch=20)


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "foreign", "state"])
def test_a_damaged_checkpoint_is_an_error_that_names_it_and_stays(data, tmp_path, damage):
    out = tmp_path / "out"
    with pytest.raises(Interrupted):
        go(specification(data), out, Stop(8))
    for earlier in checkpoints(out)[1:]:
        earlier.unlink()
    (path,) = checkpoints(out)
    whole = path.read_bytes()
    if damage == "foreign":
        from safetensors.torch import save_file

        save_file({"weight": torch.zeros(2)}, path)
    elif damage == "state":
        state = checkpoint.load(path)
        del state["learner"]["model"]
        checkpoint.save(state, path)
    else:
        path.write_bytes(
            {"truncated": whole[: len(whole) // 2], "garbage": b"\x00garbage" * 99, "empty": b""}[
                damage
            ]
        )
    damaged = path.read_bytes()
    with pytest.raises(
        ValueError, match=r"checkpoint-0001-000002.safetensors .*delete it to start anew\.$"
    ):
        go(specification(data), out)
    assert path.read_bytes() == damaged and not (out / "record.json").exists()
    path.unlink()
    assert without_times(go(specification(data), out)[0]) == without_times(
        go(specification(data))[0]
    )


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign"])
def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(data, tmp_path, damage):
    asked, out = specification(data), tmp_path / "out"
    with pytest.raises(Interrupted):
        go(asked, out, Stop(8), save_every=0.0)
    last, before = checkpoints(out)
    whole = last.read_bytes()
    flipped = whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:]
    last.write_bytes(
        {"truncated": whole[:-5], "flipped": flipped, "empty": b"", "foreign": b"PK" + whole}[
            damage
        ]
    )
    with pytest.warns(
        CheckpointWarning,
        match=rf"{last.name} is damaged .*: going on from the one before, {before.name}\.",
    ):
        resumed, again = go(asked, out)
    whole, learner = go(asked)
    assert without_times(resumed) == without_times(whole) and same_state(
        again.state_dict(), learner.state_dict()
    )


def test_a_checkpoint_that_was_being_written_when_the_process_died_is_no_obstacle(data, tmp_path):
    asked, out = specification(data), tmp_path / "out"
    with pytest.raises(Interrupted):
        go(asked, out, Stop(8))
    (out / "checkpoint-0001-000003.safetensors.part").write_bytes(b"half")
    assert without_times(go(asked, out)[0]) == without_times(go(asked)[0])
    assert not list(out.glob("*.part"))


def test_a_damaged_record_is_an_error_and_stays(data, tmp_path):
    out = tmp_path / "out"
    go(specification(data), out)
    half = (out / "record.json").read_bytes()[:200]
    (out / "record.json").write_bytes(half)
    with pytest.raises(ValueError, match="not a gateon record, or it is damaged"):
        go(specification(data), out)
    assert (out / "record.json").read_bytes() == half


def test_a_full_disk_is_one_sentence_and_the_run_goes_on_once_there_is_room(data, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    class Fills(Quiet):
        def task(self, task, name, accuracies, seconds):
            if task == 1:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))

    asked, out = specification(data), tmp_path / "out"
    try:
        with pytest.raises(
            OSError,
            match=r"checkpoint-0002-000000.safetensors could not be written \(.+\): free some space",
        ):
            go(asked, out, Fills(), save_every=0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in checkpoints(out)] == [
        "checkpoint-0001-000006.safetensors",
        "checkpoint-0001-000005.safetensors",
    ]
    # written before
    assert (
        not list(out.glob("*.part"))
        and checkpoint.load(checkpoints(out)[0])["position"]["step"] == 6
    )
    assert without_times(go(asked, out)[0]) == without_times(go(asked)[0])


def test_a_disk_that_is_full_at_the_end_leaves_no_partial_record(data, tmp_path, monkeypatch):
    asked, out = specification(data), tmp_path / "out"

    def full(self, path):
        with checkpoint.whole_file(path) as aside:
            aside.write_text("{")
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Record, "save", full)
    with pytest.raises(
        OSError, match=r"record.json could not be written \(No space left on device\)"
    ):
        go(asked, out)
    assert sorted(path.name for path in out.iterdir()) == [
        ".lock",
        "checkpoint-0003-000000.safetensors",
    ]
    monkeypatch.undo()
    assert without_times(go(asked, out)[0]) == without_times(go(asked)[0])


def test_a_directory_that_cannot_be_written_is_named(data, tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            ValueError, match=r"file.* cannot be written \(.+\): choose another output directory\."
        ):
            go(specification(data), place)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0."),
        ({"batch": 0}, "batch must be at least 1, got 0."),
        ({"curves": 0}, "curves must be at least 1, got 0."),
        (
            {"evaluate": "some"},
            'evaluate must be "all", "last" or a number of tasks of at least 1, got \'some\'.',
        ),
        (
            {"evaluate": 0},
            'evaluate must be "all", "last" or a number of tasks of at least 1, got 0.',
        ),
        ({"isolated": [0.5]}, "isolated has 1 accuracies for 3 tasks: give one for each task."),
        (
            {"batch": 55},
            "A batch of 55 is larger than the 54 training samples of task 'task0': choose a smaller one.",
        ),
    ],
)
def test_a_run_that_cannot_be_is_refused_in_a_sentence(data, tmp_path, options, sentence):
    with pytest.raises(ValueError) as refused:
        go(specification(data), tmp_path / "out", **options)
    assert str(refused.value) == sentence
    assert not (tmp_path / "out").exists() or [
        path.name for path in (tmp_path / "out").iterdir()
    ] == [".lock"]


def test_nothing_to_measure_on_is_an_error():
    empty = Split(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long))
    train = Split(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))
    stream = Stream("tiny", 1, 2, (2,), {}, {}, lambda k: Task("only", train, empty, train, 0))
    learner = Learner(
        torch.nn.Linear(2, 2), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)
    )
    with pytest.raises(ValueError, match="Task 1 of tiny has no validation data to measure on"):
        run(stream, learner, steps=1, batch=2, part="validation")


def test_what_a_method_does_at_the_end_of_a_task_counts_as_training(data):
    class Slow(Finetune):
        def end_task(self, model, task, data):
            time.sleep(0.2)

    asked = specification(data)
    stream = asked.make_stream()
    learner = Learner(
        asked.make_learner(stream).model, optimizer=partial(torch.optim.SGD, lr=0.1), method=Slow()
    )
    assert all(
        seconds["train"] >= 0.2 for seconds in run(stream, learner, steps=1, batch=10).seconds
    )
