"""Records: they round-trip, and what is no record, or one of a newer gateon, is refused in a sentence."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict

import pytest

from gateon.runs import identity, metrics
from gateon.runs.environment import environment
from gateon.runs.record import SCHEMA, Record


def a_record(**changes):
    values = {
        "accuracy": [[0.9], [None, 0.8], [0.5, 0.6, 0.7]],
        "tasks": ["a", "ä", "c"],
        "contexts": [0, 1, 2],
        "curves": [[[1, 0.5]]],
    }
    return Record("run", {"seed": 3}, {"name": "mnist", "sha256": "0"}, **values | changes)


def test_a_record_comes_back_as_it_was(tmp_path):
    path = tmp_path / "record.json"
    a_record(isolated=[0.9, 0.9, 0.9]).save(path)
    assert asdict(Record.load(path)) == asdict(a_record(isolated=[0.9, 0.9, 0.9]))
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]


def test_the_file_holds_the_summary_and_strict_json(tmp_path):
    a_record().save(tmp_path / "record.json")

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    content = json.loads((tmp_path / "record.json").read_text(), parse_constant=refuse)
    assert content["summary"] == a_record().summary and content["schema"] == SCHEMA
    assert content["accuracy"][1] == [None, 0.8]


def test_the_summary_is_that_of_the_metrics():
    whole = a_record(accuracy=[[0.9], [0.7, 0.8]])
    assert whole.summary == metrics.summary([[0.9, None], [0.7, 0.8]])
    assert "accuracy_deviation" in a_record(isolated=[0.9] * 3).summary


def test_a_newer_schema_is_refused_and_says_what_to_do(tmp_path):
    path = tmp_path / "record.json"
    path.write_text(
        json.dumps(asdict(a_record()) | {"schema": SCHEMA + 1, "accuracy": "of another kind"})
    )
    with pytest.raises(
        ValueError,
        match=f"record.json has schema {SCHEMA + 1}, this gateon reads up to {SCHEMA}: update gateon",
    ):
        Record.load(path)


def test_what_a_newer_gateon_added_within_the_schema_does_not_hurt(tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps(asdict(a_record()) | {"energy": 12}))
    assert asdict(Record.load(path)) == asdict(a_record())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1, 2]",
        "3",
        "null",
        '{"name": "x"}',
        '{"schema": "one"}',
        '{"schema": null}',
        '{"schema": 1}',
        json.dumps(asdict(a_record()) | {"accuracy": "none"}),
        json.dumps(asdict(a_record()) | {"accuracy": [[0.5], 3]}),
        json.dumps(asdict(a_record()) | {"accuracy": []}),
        json.dumps(asdict(a_record()) | {"isolated": [0.5]}),
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_record_is_refused(tmp_path, text):
    path = tmp_path / "record.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(
        ValueError, match=r"record.json is not a gateon record, or it is damaged: move it away\.$"
    ):
        Record.load(path)


def test_the_environment_names_versions_machine_and_time():
    found = environment()
    assert found["versions"]["gateon"] and found["cores"] >= 1 and "+00:00" in found["time"]
    assert json.loads(json.dumps(found)) == found


def test_a_package_below_another_repository_does_not_take_its_commit(tmp_path, monkeypatch):
    (tmp_path / "gateon").mkdir()
    (tmp_path / "gateon" / "identity.py").write_text("")
    (tmp_path / "own.py").write_text("")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "own.py"], [*who, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(identity, "__file__", str(tmp_path / "gateon" / "identity.py"))
    assert identity.commit() is None and not identity.is_dirty()
    identity.check_clean(allow_dirty=False)
    subprocess.run(["git", "add", "gateon"], cwd=tmp_path, check=True)
    subprocess.run(["git", *who, "commit", "-q", "-m", "y"], cwd=tmp_path, check=True)
    assert len(identity.commit()) == 40
    (tmp_path / "gateon" / "identity.py").write_text("changed")
    assert identity.commit().endswith("+")


def repository(folder, monkeypatch):
    """A source tree of its own with one commit, from which gateon seems to run."""
    source, other = folder / "runs" / "identity.py", folder / "gating" / "gate.py"
    for path in (source, other):
        path.parent.mkdir()
        path.write_text("a = 1\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    monkeypatch.setattr(identity, "__file__", str(source))
    return other  # of another room


def test_a_record_of_the_project_is_refused_from_a_tree_with_changes(tmp_path, monkeypatch):
    source = repository(tmp_path, monkeypatch)
    identity.check_clean(allow_dirty=False)
    clean = environment()["commit"]
    assert len(clean) == 40 and not identity.is_dirty()
    source.write_text("a = 2\n")
    assert environment()["commit"] == clean + "+"
    with pytest.raises(ValueError, match="commit them, or give --allow-dirty"):
        identity.check_clean(allow_dirty=False)
    identity.check_clean(allow_dirty=True)


def test_records_of_older_numerics_say_so(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    a_record().save(path)
    assert Record.load(path).numerics == 1 and not Record.load(path).is_old
    monkeypatch.setattr("gateon.runs.record.NUMERICS", 2)
    assert Record.load(path).is_old


def test_a_record_without_numerics_is_of_the_first(tmp_path):
    path = tmp_path / "record.json"
    content = asdict(a_record())
    del content["numerics"], content["command"]
    path.write_text(json.dumps(content | {"schema": 2}))
    assert (Record.load(path).numerics, Record.load(path).command) == (1, None)
