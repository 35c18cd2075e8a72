"""What trackers are told: every figure once, the same record, and nothing that can stop a run."""

from __future__ import annotations

import json
import warnings

import pytest

from gateon import cli, run
from gateon.runs import tracked
from gateon.runs.progress import Quiet
from gateon.runs.record import Record
from gateon.runs.specified import run_specification
from gateon.tracking import choosing
from gateon.tracking.tracker import TrackerWarning
from specified import specified

SMALL = {"data": "mnist-5k", "hidden": (12,), "steps": 10, "batch": 30, "threads": 1}
STEPS = 10
pytestmark = pytest.mark.usefixtures("few_digits")


class Kept:
    """A tracker that keeps what it is told."""

    def __init__(self, name="kept"):
        self.name, self.starts, self.told, self.files, self.ends = name, [], [], [], []

    def start(self, run):
        self.starts.append(run)
        return run.id or "one"

    def scalars(self, values, step):
        self.told += [(name, step, value) for name, value in values.items()]

    def artefact(self, path):
        self.files.append(path.name)

    def end(self, finished):
        self.ends.append(finished)

    def of(self, kind):
        return {step: value for name, step, value in self.told if name == kind}


class Killed(BaseException):
    """What no run can save itself from."""


class Kill(Quiet):
    def __init__(self, task, step):
        self.at = task, step

    def step(self, task, step, loss):
        if (task, step) == self.at:
            raise Killed


@pytest.fixture(autouse=True)
def every_loss(monkeypatch):
    monkeypatch.setattr(tracked, "OFTEN", 0.0)


def asked(tasks=3, **options):
    return specified("permuted-mnist", **{**SMALL, "tasks": tasks, **options})


def go(out, *trackers, progress=None, **options):
    return run_specification(asked(**options), out, trackers=trackers, progress=progress)


def same(one, other):
    """Whether two records are equal but for times."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("accuracy", "macro_f1", "availability", "density", "contexts", "switches")
    )


def test_everything_the_record_has_is_told_at_its_batch_and_the_record_is_the_same(tmp_path):
    kept = Kept()
    record = go(tmp_path / "tracked", kept)
    assert same(record, go(tmp_path / "plain"))
    assert not (tmp_path / "plain" / tracked.TRACKING).exists()
    for k, row in enumerate(record.accuracy):
        at = STEPS * (k + 1)
        assert [kept.of(f"accuracy/task_{j + 1}")[at] for j in range(k + 1)] == row
        assert kept.of("mean_accuracy")[at] == pytest.approx(sum(row) / len(row))
        lost = [record.accuracy[j][j] - row[j] for j in range(k)]
        assert kept.of("forgetting")[at] == pytest.approx(sum(lost) / k if k else 0.0)
        for site, held in record.availability[k].items():
            assert kept.of(f"availability/{site}")[at] == held["room"]
            assert kept.of(f"saturation/{site}")[at] == held["frozen"]
    assert list(kept.of("loss")) == list(range(1, 31))
    assert kept.of("context") == {1: 0, 11: 1, 21: 2}
    (start,) = kept.starts
    assert (start.name, start.group, start.id) == ("tracked", tmp_path.name, None)
    assert start.settings["training.steps"] == STEPS and start.settings["seed"] == 0
    assert kept.files == ["record.json"] and kept.ends == [True]


def test_a_killed_run_tells_nothing_twice_and_goes_on_under_its_id(tmp_path):
    whole, cut = Kept(), Kept()
    record = go(tmp_path / "whole", whole)
    for at in ((1, 7), (2, 4)):
        with pytest.raises(Killed):
            go(tmp_path / "cut", cut, progress=Kill(*at))
    assert same(go(tmp_path / "cut", cut), record)
    places = [(name, step) for name, step, _ in cut.told]
    assert len(places) == len(set(places))
    # All but the losses of batches that were learned, killed and learned again differently far.
    assert {one for one in whole.told if one[0] != "loss"} == {
        one for one in cut.told if one[0] != "loss"
    }
    assert list(cut.of("loss")) == sorted(cut.of("loss")) and cut.of("loss").keys() >= {10, 20, 30}
    assert [start.id for start in cut.starts] == [None, "one", "one"]
    assert cut.ends == [False, False, True]


def test_a_tracker_that_comes_later_is_told_what_was_measured_before(tmp_path):
    first, later, last = Kept("first"), Kept("later"), Kept("last")
    with pytest.raises(Killed):
        go(tmp_path / "run", first, progress=Kill(1, 3))
    record = go(tmp_path / "run", first, later)
    assert later.of("mean_accuracy") == first.of("mean_accuracy")
    assert list(later.of("mean_accuracy")) == [10, 20, 30]
    assert go(tmp_path / "run", first, last) == record  # finished long ago
    assert last.of("mean_accuracy") == first.of("mean_accuracy") and last.files == ["record.json"]
    assert len(first.starts) == 2 and len(first.of("forgetting")) == 3


def test_more_tasks_go_on_in_the_same_run(tmp_path):
    kept = Kept()
    go(tmp_path / "run", kept, tasks=2)
    go(tmp_path / "run", kept, tasks=3)
    assert [start.id for start in kept.starts] == [None, "one"]
    assert list(kept.of("tasks")) == [10, 20, 30] and kept.of("context") == {1: 0, 11: 1, 21: 2}


def test_inferred_contexts_are_told_as_they_are_found(tmp_path):
    kept = Kept()
    options = {"hidden": (60,), "steps": 60, "batch": 100, "lr": 5e-3, "tasks": 2}
    record = go(tmp_path / "run", kept, contexts="inferred", **options)
    assert record.switches
    found = {60 * task + step + 1: context for task, step, context in record.switches}
    assert kept.of("context") == {1: 0} | found
    assert list(kept.of("switches").values()) == list(range(1, len(found) + 1))


class Broken(Kept):
    """Fails at the n-th call."""

    def __init__(self, calls):
        super().__init__("broken")
        self.left = calls

    def _count(self):
        self.left -= 1
        if self.left < 0:
            raise OSError("Network is unreachable\nand much more")

    def start(self, run):
        self._count()
        return super().start(run)

    def scalars(self, values, step):
        self._count()
        super().scalars(values, step)

    def end(self, finished):
        self._count()


@pytest.mark.parametrize("calls", [0, 1, 5])
def test_a_tracker_that_fails_is_one_warning_and_the_run_goes_on(tmp_path, calls):
    broken, kept = Broken(calls), Kept()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        record = go(tmp_path / "run", broken, kept)
    assert [str(one.message) for one in told if one.category is TrackerWarning] == [
        "The tracker broken failed (Network is unreachable): the run goes on without it."
    ]
    assert same(record, go(tmp_path / "plain")) and len(kept.of("loss")) == 30
    assert broken.left == -1


def test_what_a_tracker_prints_is_not_among_the_results(tmp_path, capsys):
    class Loud(Kept):
        def start(self, run):
            print("hello from a tracker")
            return "one"

    go(tmp_path / "run", Loud(), tasks=1)
    out, err = capsys.readouterr()
    assert out == "" and "hello from a tracker" in err


def test_a_run_without_a_directory_is_tracked_too():
    kept, stream = Kept(), asked().make_stream()
    record = run(stream, asked().make_learner(stream), steps=4, batch=30, trackers=[kept])
    assert list(kept.of("mean_accuracy")) == [4, 8, 12] and kept.files == []
    assert kept.starts[0].name == record.name and kept.ends == [True]


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ("mlfow", ValueError, "There is no tracker 'mlfow', perhaps 'mlflow': choose tensorboard"),
        (Quiet(), ValueError, "is no tracker, since it has no name"),
        ("mlflow", ImportError, "The tracker mlflow is not installed: pip install mlflow."),
    ],
)
def test_what_cannot_track_is_told_before_anything_is_trained(
    tmp_path, monkeypatch, given, kind, words
):
    monkeypatch.setattr(choosing, "find_spec", lambda name: None)
    with pytest.raises(kind, match=words):
        go(tmp_path / "run", given)
    assert not (tmp_path / "run").exists()


def test_the_program_says_what_is_missing_in_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(choosing, "find_spec", lambda name: None)
    for words in (["run", "permuted-mnist"], ["compare", "permuted-mnist"]):
        assert (
            cli.main([*words, "--track", "tensorboard, trackio", "--out", str(tmp_path / "o")]) == 2
        )
        out, err = capsys.readouterr()
        assert (out, err) == (
            "",
            "gateon: The tracker tensorboard is not installed: pip install tensorboard.\n",
        )
    assert not (tmp_path / "o").exists()


def test_a_run_goes_on_without_a_tracker_that_is_gone_by_now(tmp_path, monkeypatch):
    with pytest.raises(Killed):
        go(tmp_path / "run", Kept("mlflow"), progress=Kill(1, 3))
    monkeypatch.setattr(choosing, "find_spec", lambda name: None)
    with pytest.warns(TrackerWarning, match="mlflow is not installed.*goes on without it"):
        assert len(go(tmp_path / "run").tasks) == 3


@pytest.mark.parametrize("content", ["{", "[]", '{"kept": {"id": 1}}', '{"kept": 3}'])
def test_a_damaged_note_of_how_far_is_one_sentence(tmp_path, content):
    (tmp_path / tracked.TRACKING).write_text(content)
    with pytest.raises(ValueError, match="does not say how far the run was tracked: move it away"):
        go(tmp_path, Kept())


def test_how_far_is_in_the_directory(tmp_path):
    go(tmp_path, Kept())
    held = json.loads((tmp_path / tracked.TRACKING).read_text())
    assert held == {"kept": {"id": "one", "loss": 30, "context": 21, "task": 30}}
    assert Record.load(tmp_path / "record.json").trace is None
