"""Several processes run one command: what they leave, how they stop, and what they refuse."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO

import numpy as np
import pytest
import torch
from states import assert_equal, flat
from torch.optim import SGD

import gateon
from gateon import cli
from gateon.cli import printing
from gateon.runs import run
from gateon.runs.folder import checkpoints
from gateon.runs.progress import Quiet
from gateon.storage import checkpoint

STEPS = ["--steps", "4"]
# What both processes are told to do, one after the other; a number is sent to one of them.
COMMANDS = [
    ("whole", [], None),
    ("term", [], (signal.SIGTERM, 0)),
    ("term", [], None),
    ("usr1", [], (signal.SIGUSR1, 1)),
    ("usr1", [], None),
    ("whole", ["--batch", "5"], None),
    ("killed", [], (signal.SIGKILL, 1)),
]


def words(data, out, *more):
    network = ["--hidden", "6", "--density", "0.75", "--steps", "4", "--batch", "11"]
    return ["run", f"own:{data}", *network, "--threads", "1", "--out", str(out), "--json", *more]


class Sends(Quiet):
    """Sends a signal to this process in the middle of the second task."""

    def __init__(self, number):
        self.number = number

    def step(self, task, step, loss):
        if (task, step) == (1, 2):
            os.kill(os.getpid(), self.number)


def work(rank, folder, ports):
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    for n, (out, more, sent) in enumerate(COMMANDS):
        os.environ["MASTER_PORT"] = str(ports[n])
        number, to = sent or (0, -1)
        run.Quiet = partial(Sends, number) if rank == to == 1 else Quiet
        printing.progress = lambda quiet, to=to, number=number: (
            Sends(number) if rank == to == 0 else Quiet()
        )
        with redirect_stdout(StringIO()) as said, redirect_stderr(StringIO()) as told:
            begin = time.monotonic()
            code = cli.main(words(folder / "data", folder / out, *more))
        left = {"code": code, "out": said.getvalue(), "err": told.getvalue()}
        left["seconds"] = time.monotonic() - begin
        left["files"] = sorted(path.name for path in (folder / out).iterdir())
        (folder / f"{n}-{rank}.json").write_text(json.dumps(left))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Where two processes ran the commands, and what each said at which."""
    folder = tmp_path_factory.mktemp("both")
    (folder / "data").mkdir()
    for k in range(3):
        drawn = np.random.default_rng(k)
        x, y = drawn.normal(size=(31, 4)).astype(np.float32), np.arange(31) % 3
        np.savez(folder / f"data/task{k}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    started = torch.multiprocessing.get_context("spawn")
    ports = free_ports(len(COMMANDS))
    pair = [started.Process(target=work, args=(rank, folder, ports)) for rank in range(2)]
    for process in pair:
        process.start()
    try:
        for process in pair:
            process.join(100)
    finally:
        for process in pair:
            process.kill()
    assert [process.exitcode for process in pair] == [0, -signal.SIGKILL]
    return folder


def free_ports(count):
    with ExitStack() as open_:
        found = [open_.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


def said(folder, number):
    paths = [folder / f"{number}-{rank}.json" for rank in range(2)]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def left(out):
    """What a run leaves, without what differs from run to run."""
    record = json.loads((out / "record.json").read_text())
    del record["seconds"], record["environment"]["time"], record["command"]
    (path,) = checkpoints(out)
    state = checkpoint.load(path)
    del state["times"]
    return record, flat(state)


def test_the_first_process_alone_writes_and_talks(both):
    first, second = said(both, 0)
    assert (first["code"], second["code"]) == (0, 0)
    assert json.loads(first["out"])["final_accuracy"] > 0
    assert second["out"] == second["err"] == ""
    record, state = left(both / "whole")
    assert record["environment"]["processes"] == state["processes/"] == 2
    kinds = {"checkpoint-0003-000000.safetensors", "record.json", "specification.toml"}
    assert kinds <= set(first["files"])
    assert sum("checkpoint" in name for name in first["files"]) == 1


def test_they_find_what_one_process_finds(both, tmp_path, capsys):
    assert cli.main(words(both / "data", tmp_path / "o")) == 0
    capsys.readouterr()
    (one, alone), (two, together) = left(tmp_path / "o"), left(both / "whole")
    assert one["contexts"] == two["contexts"]
    for name, value in alone.items():
        if name.startswith("learner/model/"):
            assert torch.allclose(value, together[name], rtol=0, atol=1e-3), name


@pytest.mark.parametrize(("number", "name"), [(1, "term"), (3, "usr1")])
def test_a_signal_to_one_of_them_saves_and_the_same_command_goes_on(both, number, name):
    first, second = said(both, number)
    assert first["code"] == second["code"] == 75
    assert first["err"] == "\nStopped and saved. Run the same command to continue.\n"
    assert second["err"] == ""
    assert "checkpoint-0001-000002.safetensors" in first["files"]
    assert "record.json" not in first["files"]
    assert [one["code"] for one in said(both, number + 1)] == [0, 0]
    assert_equal(left(both / "whole")[1], left(both / name)[1])
    assert left(both / "whole")[0] == left(both / name)[0]


def test_what_the_first_refuses_is_said_once(both):
    first, second = said(both, 5)
    assert first["code"] == second["code"] == 2
    assert first["err"].count("holds another run") == 1
    assert second["err"] == ""


def test_one_that_dies_ends_the_other_with_a_sentence(both):
    (other,) = said(both, 6)
    assert other["code"] == 75
    assert other["seconds"] < 60
    assert other["err"].startswith("gateon: Another process of this run has ended or does not")
    assert other["err"].count("\n") == 1


def test_another_number_of_processes_is_refused(both, tmp_path, capsys):
    stopped = tmp_path / "o"
    shutil.copytree(both / "whole", stopped)
    (stopped / "record.json").unlink()
    assert cli.main(words(both / "data", stopped)) == 2
    assert (
        "holds a run of 2 processes, and 1 would round its sums differently: go on with 2 (torchrun "
        "--nproc-per-node 2), or choose another output directory; nothing was changed."
    ) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["list", "streams"], "gateon list is for one process"),
        (["run", "nowhere"], "nowhere"),
    ],
)
def test_what_every_process_refuses_is_said_once(monkeypatch, capsys, command, sentence):
    for rank, says in ((0, 1), (1, 0)):
        for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2}.items():
            monkeypatch.setenv(name, str(value))
        assert cli.main(command) == 2
        assert capsys.readouterr().err.count(sentence) == says


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR and MASTER_PORT is not set"),
        ({"RANK": "0", "WORLD_SIZE": "many"}, "WORLD_SIZE is 'many': start the processes by torch"),
        ({"RANK": "3", "WORLD_SIZE": "2"}, "RANK is '3' and WORLD_SIZE is '2'"),
        ({"WORLD_SIZE": "2"}, "RANK is None"),
    ],
)
def test_an_environment_that_makes_no_sense_is_refused(
    tmp_path, monkeypatch, capsys, given, sentence
):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert cli.main(words("nothing", tmp_path / "o")) == 2
    assert sentence in capsys.readouterr().err


def test_a_learner_of_one_process_is_refused(monkeypatch):
    monkeypatch.setattr(run, "current", lambda: gateon.Processes(0, 2))
    stream = gateon.streams.split_mnist(data="mnist-5k")
    learner = gateon.Learner(gateon.models.mlp(784, (4,), 2), optimizer=lambda p: SGD(p, lr=0.1))
    with pytest.raises(ValueError, match="cannot be trained by several processes"):
        gateon.run(stream, learner)


@pytest.mark.parametrize(
    ("device", "ways", "taken"),
    [("cpu", "cpu:gloo", []), ("cuda", "cpu:gloo,cuda:nccl", [1])],
)
def test_what_trains_decides_how_the_processes_communicate(monkeypatch, device, ways, taken):
    """There may be a GPU that is not used, and numbers on the CPU beside one that is."""
    given = {"RANK": 1, "LOCAL_RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": "here", "MASTER_PORT": 1}
    for name, value in given.items():
        monkeypatch.setenv(name, str(value))
    joined, devices = [], []
    dist = torch.distributed
    monkeypatch.setattr(dist, "init_process_group", lambda way, **rest: joined.append(way))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_device", devices.append)
    with gateon.together(device) as processes:
        assert processes == gateon.Processes(1, 2)
    assert joined == [ways] and devices == taken
    # what torch makes of it: a process group for numbers on the CPU and one for the device
    found = dist.distributed_c10d.BackendConfig(dist.Backend(joined[0])).get_device_backend_map()
    assert found == dict(way.split(":") for way in ways.split(","))
