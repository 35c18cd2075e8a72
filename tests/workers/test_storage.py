"""Runs whose directories are at a URL: the same records, whatever is torn, lost or taken over."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from worker_tools import Heard, found, of_two_tasks

from gateon.cli import main
from gateon.runs.record import Record
from gateon.storage import claim as claim_module
from gateon.storage.claim import Claim, Held, claimed
from gateon.storage.lock import BusyError, Owner
from gateon.storage.remote import Remote, StorageError
from gateon.workers import mirror as mirror_module
from gateon.workers.alike import alike
from gateon.workers.carry import News
from gateon.workers.comparison import compare, pieces_of
from gateon.workers.engine import Engine
from gateon.workers.mirror import OWNER, Mirror
from gateon.workers.plan import Listed, Piece
from gateon.workers.scratch import done_at, scratch
from gateon.workers.store import stored_at

small = partial(of_two_tasks, threads=1)


@pytest.fixture
def remote(tmp_path):
    return Remote(f"file://{tmp_path / 'there'}")


@pytest.fixture
def there(tmp_path):
    return tmp_path / "there"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(mirror_module, "PAUSES", (0.01,))
    monkeypatch.setattr(mirror_module, "EVERY", 0.01)


# Files.


def test_readers_never_see_half_a_file(remote, there, tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    whole.write_bytes(b"old" * 1000)
    remote.send(whole, "state")
    put = LocalFileSystem.put_file

    def torn(self, path1, path2, **named):
        Path(path2).write_bytes(Path(path1).read_bytes()[:100])
        raise OSError("the line went dead")

    whole.write_bytes(b"new" * 1000)
    monkeypatch.setattr(LocalFileSystem, "put_file", torn)
    with pytest.raises(StorageError, match=r"cannot be written \(the line went dead\): check the"):
        remote.send(whole, "state")
    assert (there / "state").read_bytes() == b"old" * 1000
    assert remote.files() == ["state"]
    seen = []

    def watched(self, path1, path2, **named):
        put(self, path1, path2, **named)
        seen.append((there / "state").read_bytes()[:3])  # not there before it is whole

    monkeypatch.setattr(LocalFileSystem, "put_file", watched)
    remote.send(whole, "state")
    assert seen == [b"old"] and (there / "state").read_bytes() == b"new" * 1000


def test_an_object_store_is_written_at_once(tmp_path, monkeypatch):
    placed = []
    remote = Remote("s3://bucket/runs")
    remote._system = (LocalFileSystem(auto_mkdir=True), str(tmp_path / "bucket"))
    put = LocalFileSystem.put_file
    monkeypatch.setattr(
        LocalFileSystem,
        "put_file",
        lambda s, a, b, **k: (placed.append(Path(b).name), put(s, a, b)),
    )
    (tmp_path / "state").write_text("1")
    remote.below("one").send(tmp_path / "state", "state")
    assert placed == ["state"] and (tmp_path / "bucket" / "one" / "state").exists()


@pytest.mark.parametrize(
    ("url", "kind", "sentence"),
    [
        ("carrier-pigeon://coop", StorageError, "which fsspec does not know: give one like s3://"),
        ("dropbox://runs", ImportError, "not installed here: pip install dropboxdrivefs"),
        (
            "simplecache::s3://bucket/runs",
            ValueError,
            "is no URL of a directory: expected one like",
        ),
        ("s3://", ValueError, "is no URL of a directory"),
        ("file:///dev/null/runs", StorageError, r"cannot be written \(.*\): check the address"),
    ],
)
def test_storage_that_cannot_be_used_is_one_sentence(url, kind, sentence):
    with pytest.raises(kind, match=sentence) as raised, stored_at(url):
        pass
    assert "\n" not in str(raised.value)


def test_a_missing_library_is_named(monkeypatch):
    def missing(protocol):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(ImportError, match="s3:// is not installed here: pip install s3fs"):
        Remote("s3://bucket/runs").read("record.json")


def test_storage_that_only_this_machine_sees(remote):
    with alike(remote) as wanted:
        wanted.check()
        remote.remove(wanted.mark)
        with pytest.raises(ValueError, match=r"does not see file://.*: give --out a directory on"):
            wanted.check()


def test_storage_that_another_machine_may_only_read(remote, monkeypatch):
    with alike(remote) as wanted:
        monkeypatch.setattr(LocalFileSystem, "pipe_file", lambda *a, **k: 1 / 0)
        with pytest.raises(ValueError, match=r"The node .* cannot use --out: .* cannot be written"):
            wanted.check()


# One program at a time.


def another(remote, **changes):
    """A claim of a program on another machine."""
    one = Claim(remote)
    owner = Owner(**({"pid": 7, "host": "elsewhere", "since": "then", "born": "1"} | changes))
    one.held = Held(owner, holds=True, beat=0)
    one.renew()
    return one


def test_two_programs_at_one_url(remote):
    with claimed(remote):
        with pytest.raises(
            BusyError, match=r"Another process is running in file://.*: wait for it"
        ):
            Claim(remote).take()
        assert len(remote.files()) == 1
    with claimed(remote):
        pass
    assert remote.files() == []


def test_of_two_that_begin_at_once_one_goes_on(remote, monkeypatch):
    monkeypatch.setattr(claim_module, "LOOK", 0.005)
    for _ in range(10):
        ends, barrier = [], threading.Barrier(3)

        def begin(ends=ends, barrier=barrier):
            one = Claim(remote)
            barrier.wait()
            try:
                one.take()
                ends.append(one)
            except BusyError:
                ends.append(None)

        several = [threading.Thread(target=begin) for _ in range(3)]
        [one.start() for one in several]
        [one.join() for one in several]
        holders = [one for one in ends if one is not None]
        assert len(holders) == 1 and len(ends) == 3
        holders[0].release()


def test_what_a_dead_program_left_is_taken_away(remote, monkeypatch):
    another(remote, pid=2**22 + 1, host=Owner.me().host)  # no process has this number
    with claimed(remote):
        assert len(remote.files()) == 1
    another(remote)
    monkeypatch.setattr(claim_module, "LEASE", 0.05)
    monkeypatch.setattr(claim_module, "LOOK", 0.03)
    told = []
    with claimed(remote, told.append):
        assert len(remote.files()) == 1
    assert len(told) == 1 and "process 7 on elsewhere" in told[0]


def test_a_program_elsewhere_that_lives_is_left_alone(remote, monkeypatch):
    other = another(remote)
    monkeypatch.setattr(time, "sleep", lambda seconds: other.renew())
    with pytest.raises(BusyError, match="process 7 on elsewhere"):
        Claim(remote).take()
    assert remote.files() == [other.name]


@pytest.mark.parametrize("how", ["taken away", "beside another"])
def test_a_program_that_slept_too_long_stops(remote, monkeypatch, how):
    monkeypatch.setattr(claim_module, "BEAT", 0.01)
    with stored_at(remote.url) as store:
        if how == "taken away":
            remote.remove(store.claim.name)
        else:
            another(remote)
        while store.claim.lost is None:
            time.sleep(0.01)
        with pytest.raises(BusyError, match="Another process"):
            store.following(Listed([])).heard(Piece("a", store.folder / "a", print), "step", (0, 1))


# Runs.


class Died(BaseException):
    """What happens to a process that is killed: nothing is brought over any more."""


def settled(there, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not list(there.glob(what)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_that_died_goes_on_from_what_was_brought_over(remote, there, tmp_path):
    asked = {"run": small(tasks=3)}
    Engine().carry_out(Listed(pieces_of(asked, tmp_path / "a")), tmp_path / "a")
    (piece,) = pieces_of(asked, tmp_path / "b")

    def die(event, told):
        if event == "task" and told[0] == 1:  # the checkpoint after task 0 may be under way
            settled(there / "run", "checkpoint-0001-*")
            raise Died
        return True

    with pytest.raises(Died):
        done_at(remote, piece, die)
    places = []
    how, record = done_at(
        remote, piece, lambda event, told: (event == "begin" and places.append(told[2])) or True
    )
    assert how == "done" and places == [10]  # task 0 was not learned again
    assert found(record) == found(Record.load(tmp_path / "a" / "run" / "record.json"))
    written = Record.load(there / "run" / "record.json")
    assert found(written) == found(record)
    names = {path.name for path in (there / "run").iterdir()}
    assert names == {
        OWNER,
        "checkpoint-0003-000000.safetensors",
        "record.json",
        "specification.toml",
    }
    assert not (tmp_path / "b").exists()  # nothing is written where the plan was made
    again, heard = [], (there / "run" / "record.json").stat().st_mtime_ns
    assert done_at(remote, piece, lambda *told: again.append(told) or True)[0] == "done"
    assert not again and heard == (there / "run" / "record.json").stat().st_mtime_ns


def test_a_torn_checkpoint_is_passed_over(remote, there, tmp_path):
    asked = {"run": small(tasks=2, steps=10)}
    (piece,) = pieces_of(asked, tmp_path / "b")
    how, record = done_at(remote, piece, lambda *told: True)
    whole = there / "run" / "checkpoint-0002-000000.safetensors"
    (there / "run" / "record.json").unlink()
    whole.with_name("checkpoint-0002-000003.safetensors").write_bytes(whole.read_bytes()[:500])
    with pytest.warns(RuntimeWarning, match="damaged .*: going on from the one before"):
        how, again = done_at(remote, piece, lambda *told: True)
    assert how == "done" and found(again) == found(record)
    assert not list((there / "run").glob("checkpoint-0002-000003*"))


def test_a_run_that_was_taken_over_writes_no_more(remote, there, tmp_path):
    here = tmp_path / "here"
    one = Mirror(here, remote)
    one.begin()
    (here / "note").write_text("1")
    settled(there, "note")
    other = Mirror(tmp_path / "other", remote)
    other.begin()
    (here / "note").write_text("2")
    deadline = time.monotonic() + 30
    while one.check():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    one.finish()
    other.finish()
    assert (there / "note").read_text() == "1"
    piece = Piece("run", tmp_path / "run", partial(take_over, remote))
    assert done_at(remote, piece, lambda *told: True) == ("dropped", None)


def take_over(remote, out, progress):
    """A run that a later mirror takes over while it learns."""
    remote.below("run").write(OWNER, b"another")
    (out / "run" / "note").write_text("3")
    progress.begin("demo", [1], 0)


def test_storage_that_fails_for_a_moment_costs_nothing(remote, there, tmp_path, monkeypatch):
    here = tmp_path / "here"
    mirror = Mirror(here, remote)
    mirror.begin()
    put = LocalFileSystem.put_file
    monkeypatch.setattr(LocalFileSystem, "put_file", lambda *a, **k: 1 / 0)
    (here / "note").write_text("1")
    deadline = time.monotonic() + 30
    while mirror.failing is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert mirror.check()
    monkeypatch.setattr(mirror_module, "PATIENCE", -1.0)
    with pytest.raises(StorageError, match="cannot be written"):
        mirror.check()
    monkeypatch.setattr(LocalFileSystem, "put_file", put)
    mirror.finish()
    assert (there / "note").read_text() == "1"


def test_a_record_is_never_there_before_what_belongs_to_it(remote, tmp_path, monkeypatch):
    here, order = tmp_path / "here", []
    mirror = Mirror(here, remote, whole=False)
    mirror.begin()
    for name in ("record.json", "checkpoint-0001-000000.safetensors", "trace.npz"):
        (here / name).write_text(name)
    monkeypatch.setattr(Remote, "send", lambda self, path, name: order.append(name))
    mirror.sync()
    assert order == ["trace.npz", "checkpoint-0001-000000.safetensors", "record.json"]


def test_what_a_tracker_writes_goes_along(remote, there, tmp_path):
    here, events = tmp_path / "here", tmp_path / "here" / "tensorboard" / "events"
    mirror = Mirror(here, remote)
    mirror.begin()
    events.parent.mkdir()
    events.write_text("1")
    (here / "checkpoint-0001-000000.safetensors").write_text("1")
    settled(there, "tensorboard/events")
    with events.open("a") as file:
        file.write("2")
    mirror.finish()
    assert (there / "tensorboard" / "events").read_text() == "12"
    other = Mirror(tmp_path / "other", remote)
    other.begin()
    (tmp_path / "other" / "checkpoint-0001-000000.safetensors").unlink()
    other.finish()
    assert (tmp_path / "other" / "tensorboard" / "events").read_text() == "12"
    assert (there / "tensorboard" / "events").read_text() == "12"


def test_a_trial_that_is_dropped_leaves_no_checkpoints(remote, there, tmp_path):
    (piece,) = pieces_of({"run": small()}, tmp_path / "b")

    def drop(event, told):
        if event != "task" or told[0] == 0:
            return True
        settled(there / "run", "checkpoint-0001-*")
        return False

    assert done_at(remote, piece, drop) == ("dropped", None)
    assert [path.name for path in (there / "run").iterdir()] == [OWNER]


def test_scratch_directories_of_the_dead_are_taken_away(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "gateon-at-work-left"
    left.mkdir()
    with scratch() as one, scratch() as other:
        assert one.is_dir() and other.is_dir() and not left.exists()
    assert not list(tmp_path.iterdir())


# Plans.


class Here:
    """A pool that does a piece as a node of a cluster would, when it is started."""

    def __init__(self, remote):
        self.remote, self.heard, self.room = remote, [], 1

    def start(self, piece):
        self.room = 0
        told = lambda kind, what: self.heard.append(News(piece.name, kind, what)) or True  # noqa: E731
        self.heard.append(News(piece.name, *done_at(self.remote, piece, told)))

    def news(self, seconds):
        heard, self.heard, self.room = self.heard, [], 1
        return heard

    def drop(self, name):
        pass

    def stop(self):
        pass

    def close(self):
        pass


@pytest.fixture
def nodes(monkeypatch):
    """Plans with a store are carried out without Ray."""

    @contextmanager
    def pool(self, folder):
        with alike(self.store.at(folder)) as wanted:
            wanted.check()
            yield Here(wanted.folder)

    monkeypatch.setattr(Engine, "_pool", pool)


def test_a_comparison_at_a_url_leaves_what_one_in_a_directory_does(nodes, remote, there, tmp_path):
    asked = {"methods": ["n-gateon", "finetune"], "seeds": 1, "isolated": True}
    plain = compare(small(), out=tmp_path / "a", **asked)
    board = Heard()
    with stored_at(remote.url) as store:
        engine = Engine(on="ray", store=store)
        apart = compare(small(), out=store.folder, engine=engine, board=lambda: board, **asked)
        (store.folder / "compare.md").write_text("| 1 |")
        assert store.shown(store.folder / "compare.md") == f"{remote.url}/compare.md"
    assert {m: [found(r) for r in rs] for m, rs in plain.items()} == {
        m: [found(r) for r in rs] for m, rs in apart.items()
    }
    assert (there / "compare.md").read_text() == "| 1 |"
    assert {path.name for path in there.iterdir()} == {
        *("n-gateon-0", "finetune-0", OWNER, "compare.md"),
        *(path.name for path in (tmp_path / "a").glob("isolated-*")),
    }


TINY = ["permuted-mnist", "--data", "mnist-5k", "--tasks", "2", "--steps", "5", "--batch", "50"]
TINY += ["--hidden", "16", "--quiet"]


def test_commands_at_a_url(nodes, remote, there, capsys):
    words = ["compare", *TINY, "--methods", "n-gateon,finetune", "--on", "ray", "--out", remote.url]
    assert main(words) == 0
    told = capsys.readouterr()
    assert f"page: {remote.url}/report.html" in told.out and not told.err
    made = {path.name for path in there.iterdir()}
    assert {"compare.json", "compare.md", "compare.png", "report.html", "finetune-0"} <= made
    before = (there / "finetune-0" / "record.json").stat().st_mtime_ns
    assert main(words) == 0
    assert before == (there / "finetune-0" / "record.json").stat().st_mtime_ns
    with claimed(remote):
        assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"gateon: Another process is running in {remote.url}")


def test_a_search_at_a_url_goes_on(nodes, remote, there, capsys):
    pytest.importorskip("optuna")
    words = ["search", *TINY, "--method", "n-gateon", "--over", "training.lr=0.001..0.1:log"]
    words += ["--on", "ray", "--out", remote.url, "--trials"]
    assert main([*words, "1"]) == 0
    first = json.loads((there / "search.json").read_text())
    assert main([*words, "2"]) == 0
    content = json.loads((there / "search.json").read_text())
    assert len(content["trials"]) == 2
    assert first["trials"][0]["settings"] in [trial["settings"] for trial in content["trials"]]
    assert f"record: {remote.url}/search.json" in capsys.readouterr().out
    assert {path.name for path in (there / "trial-0001").iterdir()} == {
        *(OWNER, "record.json", "specification.toml")
    }


def test_the_journal_is_there_before_a_trial_begins(remote, there, tmp_path):
    with stored_at(remote.url) as store:

        class Journal(Listed):
            def next(self):
                (store.folder / "trials.journal").write_text("asked\n")
                return super().next()

        plan = store.following(Journal([Piece("trial", store.folder / "trial", print)]))
        assert plan.next().name == "trial"
        assert (there / "trials.journal").read_text() == "asked\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["compare", *TINY, "--methods", "ewc"], "needs --on ray: give it, or give --out a path"),
        (["search", *TINY, "--over", "training.lr=0.1..0.2"], "needs --on ray"),
        (["reproduce", "table-1"], "needs --on ray"),
        (["run", *TINY], "it is a URL, expected a path"),
    ],
)
def test_a_url_where_there_can_be_none(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        assert main([*words, "--out", "memory://runs"]) == 2
    except SystemExit as ended:
        assert ended.code == 2
    told = capsys.readouterr()
    assert sentence in " ".join((told.out + told.err).replace("│", "").split())
    assert not list(tmp_path.iterdir())
