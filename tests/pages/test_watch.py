"""gateon report --watch: a page that follows a run, on this machine alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager
from urllib.error import HTTPError

import pytest

from gateon.pages.watch import Watched, server_of
from page_records import falling, held, left, unfinished


@contextmanager
def served(*folders):
    server = server_of(Watched(folders))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as answer:
        return answer.read().decode()


def test_the_page_follows_what_happens(tmp_path):
    with served(tmp_path) as address:
        first = asked(f"{address}/")
        assert held(first)["kind"] == "nothing" and "connect-src" in first
        before = asked(f"{address}/version")
        unfinished(tmp_path / "ewc-0", falling(2), tasks=5)
        assert asked(f"{address}/version") != before
        assert json.loads(asked(f"{address}/facts"))["waiting"]
        left(tmp_path / "ewc-0", falling(5))
        now = json.loads(asked(f"{address}/facts"))
        assert not now["waiting"] and len(now["runs"][0]["tasks"]) == 5


def test_a_file_that_cannot_be_read_is_told_and_the_last_page_stays(tmp_path):
    left(tmp_path, falling(3))
    watched = Watched([tmp_path])
    (tmp_path / "record.json").write_text("{")
    now = watched.now()
    assert "damaged" in now["problem"] and len(now["runs"][0]["tasks"]) == 3
    left(tmp_path, falling(4))
    assert watched.now()["problem"] is None and len(watched.now()["runs"][0]["tasks"]) == 4


def test_nothing_is_read_again_while_nothing_changes(tmp_path):
    watched = Watched([left(tmp_path, falling(3))])
    assert watched.now() is watched.now()


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/record.json", {}, 404),
        ("/../etc/passwd", {}, 404),
        ("/", {"Host": "evil.example:80"}, 403),
    ],
)
def test_nothing_else_is_answered(path, headers, status, tmp_path):
    with served(left(tmp_path, falling(2))) as address, pytest.raises(HTTPError) as refused:
        asked(f"{address}{path}", **headers)
    assert refused.value.code == status


def test_a_port_in_use_is_one_sentence(tmp_path):
    with served(left(tmp_path, falling(2))) as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(ValueError, match=f"Port {port} cannot be used .*: leave --port out"):
            server_of(Watched([tmp_path]), port)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_ends_it_cleanly(tmp_path):
    left(tmp_path, falling(2))
    words = [sys.executable, "-m", "gateon", "report", "--watch", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, text=True, **pipes) as program:
        address = program.stdout.readline().strip()
        assert held(asked(address))["kind"] == "runs"
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=20)
    assert program.returncode == 0 and "Traceback" not in said and "No longer served." in said
