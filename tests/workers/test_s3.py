"""Runs at a bucket, of a server on this machine that speaks S3."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
from functools import partial

import pytest
from worker_tools import found, of_two_tasks

from gateon.storage.claim import Claim, claimed
from gateon.storage.lock import BusyError
from gateon.storage.remote import Remote, StorageError
from gateon.workers.comparison import pieces_of
from gateon.workers.engine import Engine
from gateon.workers.plan import Listed
from gateon.workers.scratch import done_at
from gateon.workers.store import stored_at

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("s3fs", "moto", "flask")),
    reason="s3fs and moto are not installed: make s3",
)

small = partial(of_two_tasks, threads=1)


@pytest.fixture(scope="module")
def bucket():
    """The URL of an empty bucket; its address is in the environment, as nodes would have it."""
    import s3fs

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = dict(os.environ)
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.environ.update(told)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                s3fs.S3FileSystem(skip_instance_cache=True).mkdir("runs")
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield "s3://runs"
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.kill()
        server.wait()


def test_files_of_a_bucket(bucket, tmp_path):
    remote = Remote(f"{bucket}/a/b")
    assert remote.files() == [] and remote.read("note") is None
    (tmp_path / "note").write_bytes(b"1" * 7_000_000)
    remote.send(tmp_path / "note", "note")
    remote.write("small", b"2")
    assert remote.files() == ["note", "small"] and remote.read("small") == b"2"
    assert Remote(f"{bucket}/a").folders() == ["b"] and Remote(f"{bucket}/a").files() == []
    remote.fetch("note", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"1" * 7_000_000
    remote.remove("note")
    remote.remove("note")
    assert Remote(f"{bucket}/a/b").files() == ["small"]


def test_one_program_at_a_time(bucket):
    remote = Remote(f"{bucket}/claimed")
    with claimed(remote), pytest.raises(BusyError, match="Another process is running in s3://"):
        Claim(Remote(remote.url)).take()
    assert remote.files() == []


@pytest.mark.parametrize("url", ["s3://no-such-bucket/runs"])
def test_a_bucket_that_is_not_there(bucket, url):
    with (
        pytest.raises(
            StorageError, match=r"s3://no-such-bucket/runs cannot be written \(.*\): check"
        ),
        stored_at(url),
    ):
        pass


def test_a_run_is_left_and_gone_on_with(bucket, tmp_path):
    asked = {"run": small(tasks=3)}
    Engine().carry_out(Listed(pieces_of(asked, tmp_path / "a")), tmp_path / "a")
    (piece,) = pieces_of(asked, tmp_path / "b")
    remote = Remote(f"{bucket}/plan")

    class DiedError(BaseException):
        pass

    def die(event, told):
        if event == "task" and told[0] == 1:
            while not any(
                name.startswith("checkpoint-0001") for name in remote.below("run").files()
            ):
                time.sleep(0.05)
            raise DiedError
        return True

    with pytest.raises(DiedError):
        done_at(remote, piece, die)
    begun = []
    how, record = done_at(
        remote, piece, lambda event, told: (event == "begin" and begun.append(told[2])) or True
    )
    assert how == "done" and begun == [10]
    assert found(record) == found(load(tmp_path / "a" / "run" / "record.json"))
    remote.below("run").fetch("record.json", tmp_path / "record.json")
    assert found(load(tmp_path / "record.json")) == found(record)
    assert [name for name in remote.below("run").files() if name[0] != "."] == [
        "checkpoint-0003-000000.safetensors",
        "record.json",
        "specification.toml",
    ]


def load(path):
    from gateon.runs.record import Record

    return Record.load(path)
