"""The lock of a directory: one process at a time, who it is, and that the dead hold nothing."""

from __future__ import annotations

import json
import os
import socket

import pytest

from gateon.storage import lock
from gateon.storage.lock import Owner, alone_in, owner_of

GONE = {"pid": 4_000_000_000, "host": socket.gethostname(), "since": "2020-01-01", "born": None}


def test_a_second_one_is_refused_and_told_whose_it_is(tmp_path):
    with alone_in(tmp_path):
        me = rf"process {os.getpid()} on {socket.gethostname()}, since 20.+"
        with (
            pytest.raises(
                ValueError,
                match=rf"^Another process is running in .* \({me}\): wait for it, or choose another",
            ),
            alone_in(tmp_path),
        ):
            raise AssertionError("it was let in")
        assert owner_of(tmp_path).pid == os.getpid()
    assert owner_of(tmp_path) is None
    with alone_in(tmp_path):
        pass


@pytest.mark.parametrize(
    "content", [json.dumps(GONE), "", "no JSON", "[1]", '{"pid": "x"}', "[" * 9999]
)
def test_what_a_dead_process_left_in_the_lock_is_no_obstacle(tmp_path, content):
    (tmp_path / ".lock").write_text(content)
    assert owner_of(tmp_path) is None
    with alone_in(tmp_path):
        assert owner_of(tmp_path).pid == os.getpid()


def test_the_lock_is_given_back_when_a_run_fails(tmp_path):
    with pytest.raises(KeyError), alone_in(tmp_path):
        raise KeyError
    with alone_in(tmp_path):
        pass


@pytest.fixture
def no_locks(monkeypatch):
    """A file system that knows no locks."""
    monkeypatch.setattr(lock, "_locked", lambda file: None)


def test_without_locks_of_the_system_a_note_does(tmp_path, no_locks):
    with alone_in(tmp_path):
        assert owner_of(tmp_path).pid == os.getpid()
        with (
            pytest.raises(
                ValueError,
                match=rf"\(process {os.getpid()} on .*; if that process is gone, delete .*\.lock\.held\.$",
            ),
            alone_in(tmp_path),
        ):
            raise AssertionError("it was let in")
        assert owner_of(tmp_path).pid == os.getpid()  # the refused one did not take the note away
    assert owner_of(tmp_path) is None and not (tmp_path / ".lock.held").exists()


@pytest.mark.parametrize(
    "changes", [{}, {"pid": os.getpid(), "born": "12"}], ids=["ended", "its number used again"]
)
def test_the_note_of_a_process_that_is_gone_is_taken_over(tmp_path, no_locks, changes):
    (tmp_path / ".lock.held").write_text(json.dumps(GONE | changes))
    assert owner_of(tmp_path) is None
    with alone_in(tmp_path):
        assert (
            owner_of(tmp_path) == Owner.read(tmp_path / ".lock.held")
            and owner_of(tmp_path).pid == os.getpid()
        )


@pytest.mark.parametrize("content", [json.dumps(GONE | {"host": "elsewhere"}), "half-writ"])
def test_a_note_nothing_is_known_of_is_respected(tmp_path, no_locks, content):
    (tmp_path / ".lock.held").write_text(content)
    with (
        pytest.raises(ValueError, match=r"if that process is gone, delete .*\.lock\.held"),
        alone_in(tmp_path),
    ):
        raise AssertionError("it was let in")
    assert (tmp_path / ".lock.held").read_text() == content
