"""gateon resume and gateon inspect, the exit codes of stopped runs, and runs of older versions."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from gateon import Learner, cli, streams
from gateon.runs.folder import checkpoints
from gateon.runs.record import SCHEMA, Record
from gateon.runs.run import Interrupted, Quiet, run
from gateon.runs.specification import Specification
from gateon.runs.specified import run_specification
from gateon.storage import checkpoint
from specified import specified

SAMPLES = Path(__file__).parent.parent / "samples"
ASKED = {"hidden": (4,), "steps": 4, "batch": 10, "threads": 1, "density": 0.75}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A directory with the data that the samples were made of."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for k in range(3):
        y = np.arange(30) % 3
        x = (
            (np.arange(30 * 4).reshape(30, 4) * 7 + k * y[:, None] * 5) % 11 / 16 + y[:, None]
        ).astype(np.float32)
        np.savez(f"data/task{k}.npz", x_train=x, y_train=y, x_test=x, y_test=y)


@pytest.fixture
def program(capsys):
    def call(*words):
        capsys.readouterr()
        code = cli.main([str(word) for word in words])
        return code, *capsys.readouterr()

    return call


class Stop(Quiet):
    """Sends a signal to this process at step 2 of the second task."""

    def __init__(self, number):
        self.number = number

    def step(self, task, step, loss):
        if (task, step) == (1, 2):
            os.kill(os.getpid(), self.number)


def asked(**options):
    return specified("own:data", **ASKED | options)


def words(out, **options):
    asked(**options).save(Path("run.toml"))
    return ["run", "run.toml", "--out", out, "--quiet"]


def stopped(out, program, monkeypatch, number=signal.SIGTERM):
    """Begin a run and stop it: what the program says."""
    with monkeypatch.context() as patched:
        patched.setattr("gateon.cli.printing.progress", lambda quiet: Stop(number))
        return program(*words(out))


def without_times(out):
    record = json.loads((Path(out) / "record.json").read_text())
    del record["seconds"], record["environment"]["time"]
    return record


@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGTERM, 75), (signal.SIGINT, 130), (signal.SIGHUP, 75), (signal.SIGUSR1, 75)],
)
def test_a_stopped_run_says_so_and_resume_goes_on_with_it(program, monkeypatch, number, expected):
    code, out, err = stopped("o", program, monkeypatch, number)
    assert (code, out) == (
        expected,
        "",
    ) and err == "\nStopped and saved. Run the same command to continue.\n"
    code, out, err = program("resume", "o", "--quiet", "--json")
    assert code == 0 and err == "" and json.loads(out) == Record.load(Path("o/record.json")).summary
    assert program(*words("whole"))[0] == 0
    assert without_times("o") == without_times("whole")
    assert Specification.load(Path("o/specification.toml")) == asked()
    code, out, _ = program("resume", "o")  # finished: it is shown
    assert code == 0 and "continual" in out


def test_what_cannot_be_resumed_is_one_sentence(program):
    Path("empty").mkdir()
    for folder in ("empty", "nowhere"):
        assert program("resume", folder) == (
            2,
            "",
            f"gateon: {folder} holds no run to go on with: begin one with gateon run.\n",
        )
    stream = streams.own("data")
    learner = Learner(
        torch.nn.Linear(4, 3), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)
    )
    with pytest.raises(Interrupted):
        run(stream, learner, "mine", steps=4, batch=10, progress=Stop(signal.SIGINT))
    code, _, err = program("resume", "mine")
    assert code == 2 and err.startswith(
        "gateon: mine holds a run that gateon run did not start (There is no option 'model'"
    )
    assert err.endswith("): run the program that started it again.\n")
    checkpoint.save({"step": 1}, Path("empty/checkpoint-0000-000001.safetensors"))
    code, _, err = program("resume", "empty")
    assert code == 2 and err.endswith(
        "is not a checkpoint of a run: choose the directory of one.\n"
    )


def test_a_damaged_checkpoint_is_told_in_one_line_and_the_one_before_is_used(program, monkeypatch):
    stopped("o", program, monkeypatch)
    last, before = checkpoints(Path("o"))
    last.write_bytes(last.read_bytes()[:-1])
    code, _, err = program("resume", "o", "--quiet")
    assert code == 0
    assert err.splitlines() == [
        f"gateon: {last} is damaged or not a gateon checkpoint (it cannot be read): going on from the one before, {before.name}."
    ]
    program(*words("whole"))
    assert without_times("o") == without_times("whole")


def test_inspect_tells_what_is_there(program, monkeypatch):
    stopped("o", program, monkeypatch)
    code, out, err = program("inspect", "o")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(
        "checkpoint-0001-000002.safetensors: 1 tasks done, step 2 of the next, 0.0 MB, whole: specification,"
    )
    assert lines[1].startswith("checkpoint-0001-000000.safetensors") and lines[2:] == [
        "unfinished: gateon resume o goes on with it"
    ]
    program("resume", "o", "--quiet")
    code, out, _ = program("inspect", "o")
    assert code == 0 and out.startswith(
        "record.json: own:data n-gateon, finished, 3 tasks, continual accuracy "
    )
    assert "checkpoint-0003-000000.safetensors: 3 tasks done" in out and "unfinished" not in out
    Path("empty").mkdir()
    assert program("inspect", "empty") == (0, "no run\n", "")
    assert program("inspect", "nowhere") == (
        2,
        "",
        "gateon: There is no directory nowhere: give the directory of a run.\n",
    )


def test_inspect_tells_what_is_wrong(program, monkeypatch):
    stopped("o", program, monkeypatch)
    last, _ = checkpoints(Path("o"))
    content = bytearray(last.read_bytes())
    content[-1] ^= 64
    last.write_bytes(content)
    Path("o/record.json").write_text("{")
    Path("o/checkpoint-0001-000003.safetensors.part").write_bytes(b"half")
    code, out, err = program("inspect", "o")
    assert (
        code == 2
        and "checkpoint-0001-000000.safetensors: 1 tasks done" in out
        and ".part: left half-written" in out
    )
    damaged, wrong = err.splitlines()
    assert (
        damaged == "gateon: o/record.json is not a gateon record, or it is damaged: move it away."
    )
    assert wrong.startswith(f"gateon: {last} is damaged") and "the sha256 of tensor " in wrong
    # nothing was changed
    assert sorted(path.suffix for path in Path("o").iterdir()).count(".part") == 1


def test_inspect_names_who_is_at_work(program, monkeypatch):
    stopped("o", program, monkeypatch)
    with cli_lock("o"):
        out = program("inspect", "o")[1]
    assert f"at work: process {os.getpid()} on " in out and "unfinished" not in out


def cli_lock(folder):
    from gateon.storage.lock import alone_in

    return alone_in(Path(folder))


# Older versions


@pytest.mark.parametrize("schema", range(1, SCHEMA + 1))
def test_records_of_every_schema_are_read(schema):
    record = Record.load(SAMPLES / f"record-schema-{schema}.json")
    assert (
        record.schema == schema
        and record.tasks == ["task0", "task1", "task2"]
        and len(record.seconds) == 3
    )
    assert [len(row) for row in record.accuracy] == [1, 2, 3]
    assert set(record.summary) >= {
        "immediate_accuracy",
        "continual_accuracy",
        "forgetting_rate",
        "final_accuracy",
    }


@pytest.mark.parametrize(
    ("sample", "name"),
    [
        ("checkpoint-schema-1.safetensors", "checkpoint.safetensors"),
        ("checkpoint-schema-2.safetensors", "checkpoint-0001-000002.safetensors"),
        ("checkpoint-schema-3.safetensors", "checkpoint-0001-000002.safetensors"),
    ],
)
def test_runs_of_older_checkpoints_go_on(program, sample, name):
    """Begun by an older gateon, which did not know all options of now, and finished by this one."""
    Path("o").mkdir()
    shutil.copy(SAMPLES / sample, Path("o") / name)
    state = checkpoint.load(Path("o") / name)
    assert state["position"]["task"] == 1 and state["learner"]["model"]
    code, out, err = program("resume", "o", "--quiet", "--json")
    assert code == 0 and err == "" and json.loads(out)
    record = Record.load(Path("o/record.json"))
    assert (
        record.accuracy[0] == state["found"]["accuracy"][0]
        and len(record.accuracy) == len(record.seconds) == 3
    )
    assert [path.name for path in checkpoints(Path("o"))] == ["checkpoint-0003-000000.safetensors"]


def test_an_option_that_came_later_counts_with_its_default(monkeypatch):
    out = Path("o")
    run_specification(asked(), out)
    content = json.loads((out / "record.json").read_text())
    del content["specification"]["seed"], content["specification"]["measuring"]["evaluate"]
    (out / "record.json").write_text(json.dumps(content))
    assert run_specification(asked(), out).accuracy
    with pytest.raises(ValueError, match="holds another run, with seed 0 and not 1"):
        run_specification(asked(seed=1), out)


def test_a_run_of_other_numerics_is_another_run(monkeypatch):
    run_specification(asked(), Path("o"))
    before = Path("o/record.json").read_bytes()
    monkeypatch.setattr("gateon.runs.run.NUMERICS", 2)
    with pytest.raises(ValueError, match="numerics version 1, and this gateon has 2"):
        run_specification(asked(), Path("o"))
    assert Path("o/record.json").read_bytes() == before
