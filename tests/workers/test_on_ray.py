"""Many runs on a Ray cluster of two nodes: placed, lost with their node, and gone on with."""

from __future__ import annotations

import signal
import socket
import time
from functools import partial

import pytest
from worker_tools import Heard, found, of_two_tasks

from gateon.runs.record import Record
from gateon.runs.stopping import Interrupted
from gateon.storage.lock import Owner, release
from gateon.workers import alike as alike_module
from gateon.workers.alike import alike
from gateon.workers.carry import carry_out
from gateon.workers.comparison import compare, pieces_of
from gateon.workers.connect import address_of
from gateon.workers.engine import Engine
from gateon.workers.on_ray import Cluster, _hear_cancelling
from gateon.workers.plan import Listed, Piece
from gateon.workers.store import stored_at

needs_ray = pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("ray") is None,
    reason="Ray is not installed: pip install 'gateon[ray]'",
)


small = partial(of_two_tasks, threads=1)


@pytest.fixture(scope="module")
def cluster():
    """A head that only plans, and two nodes of one core."""
    from ray.cluster_utils import Cluster as Local

    patient = {"health_check_failure_threshold": 20}  # a busy machine has no dead nodes
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": patient}
    local = Local(initialize_head=True, head_node_args=head)
    local.nodes = [local.add_node(num_cpus=1), local.add_node(num_cpus=1)]
    yield local
    local.shutdown()


@needs_ray
def test_ray_leaves_the_records_that_one_process_does(cluster, tmp_path):
    board = Heard()
    asked = {"methods": ["n-gateon", "finetune"], "seeds": 1, "isolated": True}
    alone = compare(small(), out=tmp_path / "a", **asked)
    engine = Engine(on=f"ray:{cluster.address}")
    apart = compare(small(), out=tmp_path / "b", engine=engine, board=lambda: board, **asked)
    assert {m: [found(r) for r in rs] for m, rs in alone.items()} == {
        m: [found(r) for r in rs] for m, rs in apart.items()
    }
    assert sorted(how for _, how in board.ends) == ["done"] * 3
    assert apart["finetune"][0].environment["worker"] == f"ray on {socket.gethostname()}"
    assert not list((tmp_path / "b").glob(".seen-*"))


@needs_ray
def test_storage_that_a_node_does_not_see(cluster, tmp_path):
    with alike(tmp_path) as wanted:
        (tmp_path / wanted.mark).unlink()
        with pytest.raises(ValueError, match=r"does not see .* on storage that all nodes share"):
            Cluster(f"ray:{cluster.address}", wanted, workers=None)


def test_another_version_is_refused(tmp_path, monkeypatch):
    with alike(tmp_path) as wanted:
        monkeypatch.setattr(alike_module, "versions", lambda: wanted.versions | {"torch": "0.1"})
        with pytest.raises(ValueError, match=r"has torch 0\.1, and this machine .*: install the"):
            wanted.check()
        monkeypatch.setattr(alike_module, "versions", lambda: wanted.versions | {"numerics": "0"})
        with pytest.raises(ValueError, match=r"has gateon of numerics 0, and this machine"):
            wanted.check()


@needs_ray
def test_an_address_where_nobody_listens(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(ValueError, match=r"does not answer .*: check the address"):
            compare(small(), ["n-gateon"], 1, tmp_path, engine=Engine(on=f"ray://127.0.0.1:{port}"))


@needs_ray
def test_a_cluster_of_this_machine_has_no_more_workers_than_cores(tmp_path, monkeypatch):
    import ray

    def init(address, **told):
        assert address == "auto"  # no cluster runs here, and none is started
        raise ConnectionError

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ValueError, match=r"1000 workers are more than the .* of this machine"):
        compare(small(), ["n-gateon"], 1, tmp_path, engine=Engine(workers=1000, on="ray"))


@pytest.mark.parametrize("on", ["slurm", "ray:", "ray://host", "ray:host:port", "rays://h:1"])
def test_what_is_no_address(on):
    with pytest.raises(ValueError, match=r"--on must be ray, ray://HOST:PORT"):
        address_of(on)


def test_ray_is_asked_for_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ImportError, match=r"needs Ray: pip install 'gateon\[ray\]'"):
        compare(small(), ["n-gateon"], 1, tmp_path, engine=Engine(on="ray"))


def test_a_task_can_be_cancelled_where_ctrl_c_was_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _hear_cancelling()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
        _hear_cancelling()
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_note_of_a_process_that_is_gone_is_taken_away(tmp_path):
    note = tmp_path / ".lock.held"
    note.write_text('{"pid": 7, "host": "lost", "since": "then", "born": "1"}')
    release(tmp_path, Owner(8, "lost", "now", "1"))
    assert note.exists()
    release(tmp_path, Owner(7, "lost", "now", "1"))
    assert not note.exists()


@needs_ray
def test_a_lost_node_costs_no_more_than_what_was_not_saved(cluster, tmp_path):
    runs = {"long": small(tasks=6, steps=300), "longer": small(tasks=6, steps=300, seed=1)}
    Engine().carry_out(Listed(pieces_of(runs, tmp_path / "a")), tmp_path / "a")
    lost = []

    def lose(name, task):
        if task == 1 and not lost:
            lost.append(name)
            cluster.remove_node(cluster.nodes.pop(0), allow_graceful=False)
            cluster.nodes.append(cluster.add_node(num_cpus=1))  # the tests that follow need two

    board = Heard(lose)
    with alike(tmp_path / "b") as wanted:
        pool = Cluster(f"ray:{cluster.address}", wanted, workers=None)
        carry_out(Listed(pieces_of(runs, tmp_path / "b")), pool, board)
    assert sorted(name for name, how in board.ends if how == "done") == ["long", "longer"]
    assert [how for _, how in board.ends].count("lost") >= 1
    for name in runs:
        one, other = (Record.load(tmp_path / k / name / "record.json") for k in "ab")
        assert found(one) == found(other)


@needs_ray
def test_a_lost_node_costs_no_more_than_what_was_at_the_url(cluster, tmp_path):
    """Nodes have directories of their own; what one had learned is found at the URL."""
    runs = {"long": small(tasks=6, steps=300), "longer": small(tasks=6, steps=300, seed=1)}
    Engine().carry_out(Listed(pieces_of(runs, tmp_path / "a")), tmp_path / "a")
    there, lost = tmp_path / "there", []

    def lose(name, task):
        if task == 1 and not lost:
            wait_for(there / name, "checkpoint-*")
            lost.append(name)
            cluster.remove_node(cluster.nodes.pop(0), allow_graceful=False)
            cluster.nodes.append(cluster.add_node(num_cpus=1))

    board = Heard(lose)
    with stored_at(f"file://{there}") as store:
        engine = Engine(on=f"ray:{cluster.address}", store=store)
        plan = Listed(pieces_of(runs, store.folder))
        engine.carry_out(plan, store.folder, board=lambda: board)
        for name in runs:
            assert (store.folder / name / "record.json").exists()
            assert not list((store.folder / name).glob("checkpoint-*"))
    assert sorted(name for name, how in board.ends if how == "done") == ["long", "longer"]
    assert [how for _, how in board.ends].count("lost") == 1
    went_on = next(name for name, how in board.ends if how == "lost")
    assert board.places[went_on][0] == 0 and board.places[went_on][1] > 0
    for name in runs:
        one, other = (Record.load(k / name / "record.json") for k in (tmp_path / "a", there))
        assert found(one) == found(other)
    assert not list(there.glob(".*-*"))


def wait_for(folder, what):
    deadline = time.monotonic() + 60
    while not list(folder.glob(what)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@needs_ray
def test_a_run_that_is_stopped_while_it_reports(cluster, tmp_path):
    def restless(out, progress):
        from gateon.runs.stopping import stoppable

        with stoppable() as stop:
            while not stop:
                progress.task(0, "again", [0.5], 0.1)
        raise stop.reason

    heard = []

    def stop(name, task):
        heard.append(name)
        if len(heard) == 20:
            signal.raise_signal(signal.SIGINT)

    board = Heard(stop)
    plan = Listed([Piece("one", tmp_path / "one", restless)])
    with pytest.raises(Interrupted):
        Engine(on=f"ray:{cluster.address}").carry_out(plan, tmp_path, board=lambda: board)
    assert board.ends == [("one", "stopped")]
    assert [note.partition(":")[0] for note in board.notes] == ["Stopping"]


@needs_ray
def test_a_url_that_a_node_does_not_see(cluster):
    with stored_at("memory://here-only") as store:
        engine = Engine(on=f"ray:{cluster.address}", store=store)
        with pytest.raises(ValueError, match=r"does not see memory://here-only of this machine"):
            compare(small(), ["n-gateon"], 1, store.folder, engine=engine)
