"""Many runs in processes of one machine: the same records, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from worker_tools import Heard, found
from worker_tools import of_two_tasks as small

from gateon.runs.record import Record
from gateon.workers.comparison import compare, pieces_of
from gateon.workers.engine import Engine
from gateon.workers.plan import Listed, Piece
from gateon.workers.processes import Processes, cores_here

WORKERS = min(2, len(cores_here()))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_workers_leave_the_records_that_one_process_does(tmp_path):
    board = Heard()
    asked = {"methods": ["n-gateon", "finetune"], "seeds": 1, "isolated": True}
    alone = compare(small(), out=tmp_path / "a", **asked)
    engine = Engine(workers=WORKERS)
    apart = compare(small(), out=tmp_path / "b", engine=engine, board=lambda: board, **asked)
    assert {m: [found(r) for r in rs] for m, rs in alone.items()} == {
        m: [found(r) for r in rs] for m, rs in apart.items()
    }
    assert all(r.isolated is not None for rs in apart.values() for r in rs)
    names = [name for name, how in board.ends if how == "done"]
    assert len(names) == len(board.ends) == board.pieces == 3  # isolated networks are run once
    assert names[0].startswith("isolated-")
    where = apart["finetune"][0].environment
    assert where["worker"].startswith("worker ") and where["threads"] == 1
    assert alone["finetune"][0].environment["worker"] is None
    written = Record.load(tmp_path / "b" / "finetune-0" / "record.json")
    assert found(written) == found(apart["finetune"][0])


def test_a_finished_run_is_not_run_again(tmp_path):
    plan = pieces_of({"run": small()}, tmp_path)
    Engine(workers=1).carry_out(Listed(plan), tmp_path)
    before = (tmp_path / "run" / "record.json").stat()
    board = Heard()
    Engine(workers=1).carry_out(Listed(plan), tmp_path, board=lambda: board)
    assert (tmp_path / "run" / "record.json").stat().st_mtime_ns == before.st_mtime_ns
    assert board.places == {} and board.ends == [("run", "done")]


def test_a_worker_that_is_killed_costs_no_more_than_what_was_not_saved(tmp_path):
    asked = small(tasks=3)
    Engine().carry_out(Listed(pieces_of({"run": asked}, tmp_path / "a")), tmp_path / "a")
    board, killed = Heard(), []
    pool = Processes(1)

    def kill(name, task):
        if task == 1 and not killed:
            killed.append(pool.slots[0].process.pid)
            os.kill(killed[0], signal.SIGKILL)

    board.at_task = kill
    from gateon.workers.carry import carry_out

    plan = Listed(pieces_of({"run": asked}, tmp_path / "b"))
    carry_out(plan, pool, board)
    assert board.ends == [("run", "died"), ("run", "done")]
    assert board.places["run"][0] == 0 and board.places["run"][1] >= 10  # went on
    one, other = (Record.load(tmp_path / k / "run" / "record.json") for k in "ab")
    assert found(one) == found(other)


def die(out, progress):
    os.kill(os.getpid(), signal.SIGKILL)


def complain(out, progress):
    raise ValueError("This cannot be done: do another thing.")


def test_a_piece_that_ends_every_worker_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("gateon.workers.carry.DEATHS", 2)
    plan = Listed([Piece("poison", tmp_path, die)])
    with pytest.raises(RuntimeError, match=r"poison ended 2 times at the same place \(by SIGKILL"):
        Engine(workers=1).carry_out(plan, tmp_path)


def test_an_error_keeps_its_kind_and_lets_the_others_save(tmp_path):
    plan = Listed(
        [
            *pieces_of({"long": small(steps=100_000)}, tmp_path)[: WORKERS - 1],
            Piece("wrong", tmp_path, complain),
        ]
    )
    with pytest.raises(ValueError, match="do another thing"):
        Engine(workers=WORKERS).carry_out(plan, tmp_path)


def test_more_workers_than_cores_are_refused():
    count = len(cores_here())
    with pytest.raises(ValueError, match=f"--workers {count}, or fewer"):
        Processes(count + 1)
    with pytest.raises(ValueError, match="of 1024 threads each"):
        Processes(1, threads=1024)
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        Engine(workers=0)
    with pytest.raises(ValueError, match="--gpus does nothing without --on ray"):
        Engine(workers=1, gpus=0.5)


WORDS = [
    "compare",
    "permuted-mnist",
    "--data",
    "mnist-5k",
    "--tasks",
    "2",
    "--batch",
    "50",
    "--hidden",
    "16",
    "--methods",
    "n-gateon,finetune",
    "--out",
    "out",
]


def begin(folder, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "gateon", *WORDS, "--workers", str(WORKERS), *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until_begun(process):
    """Wait until every worker has begun a run; their process ids."""
    begun = 0
    for line in process.stderr:
        begun += " begins: " in line
        if begun == WORKERS:
            break
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(word) for word in found.read_text().split()] if found.exists() else []


def is_alive(pid):
    """Whether a process runs; one that ended and was not asked about yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_gone(pids):
    """Whether processes end within two minutes, as a busy machine may need."""
    deadline = time.monotonic() + 120
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not any(map(is_alive, pids))


@pytest.mark.parametrize(
    ("number", "whole_group", "code"),
    [(signal.SIGTERM, False, 75), (signal.SIGINT, True, 130)],
    ids=["terminated", "ctrl-c"],
)
def test_a_signal_saves_every_run_and_the_same_command_goes_on(tmp_path, number, whole_group, code):
    process = begin(tmp_path, "--steps", "2000")
    workers = until_begun(process)
    time.sleep(0.3)
    (os.killpg if whole_group else os.kill)(process.pid, number)
    told = process.communicate(timeout=120)[1]
    assert process.returncode == code, told
    assert "Run the same command to continue" in told and "Traceback" not in told
    assert all_gone(workers)
    runs = ["n-gateon-0", "finetune-0"][:WORKERS]
    assert all(list((tmp_path / "out" / run).glob("checkpoint-*")) for run in runs)


@pytest.mark.skipif(not Path("/proc").exists(), reason="the system does not tell of processes")
def test_workers_end_with_their_parent(tmp_path):
    process = begin(tmp_path, "--steps", "100000")
    workers = until_begun(process)
    assert workers
    process.kill()
    process.communicate()
    assert all_gone(workers)
    assert list((tmp_path / "out" / "n-gateon-0").glob("checkpoint-*"))
