"""The directory of a living model: one whole version in force, whatever happens."""

from __future__ import annotations

import json
import os
from itertools import count

import pytest
import torch

from gateon.life.store import FORMAT, KEPT, Store
from gateon.storage import checkpoint


def store_in(folder):
    return Store(folder, card=lambda about: f"# {about['name']}\n")


def state_of(number):
    return {"about": {"name": f"model {number}"}, "network": {"weight": torch.full((4,), number)}}


def learned(store, number):
    with store.changing():
        return store.commit(state_of(number), {"what": f"lesson {number}"})


def held(store):
    """The number that every part of the version in force agrees on."""
    state = store.load()
    number = int(state["network"]["weight"][0])
    assert state["about"]["name"] == f"model {number}"
    return number


def test_the_last_version_is_in_force(tmp_path):
    store = store_in(tmp_path / "model")
    assert not store.exists
    assert [learned(store, n) for n in (1, 2, 3)] == [1, 2, 3]
    assert held(store) == 3
    assert (store.folder / "README.md").read_text() == "# model 3\n"
    assert [event["what"] for event in store.history()] == ["lesson 1", "lesson 2", "lesson 3"]


def test_undo_goes_back_and_learning_goes_on_from_there(tmp_path):
    store = store_in(tmp_path)
    for number in (1, 2, 3):
        learned(store, number)
    with store.changing():
        assert store.undo({"what": "undone"}) == (3, 2)
    assert held(store) == 2
    assert (tmp_path / "README.md").read_text() == "# model 2\n"
    assert learned(store, 4) == 4
    with store.changing():
        assert store.undo({"what": "undone"}) == (4, 2)
    assert [line["version"] for line in store.history()] == [1, 2, 3, 2, 4, 2]


def test_only_the_last_versions_are_kept(tmp_path):
    store = store_in(tmp_path)
    for number in range(1, 11):
        learned(store, number)
    assert len(list((tmp_path / "versions").iterdir())) == KEPT
    with store.changing():
        for _ in range(KEPT - 1):
            store.undo({})
        with pytest.raises(ValueError, match=f"the last {KEPT - 1} changes can be undone"):
            store.undo({})
    assert held(store) == 10 - (KEPT - 1)


def test_the_first_lesson_cannot_be_undone(tmp_path):
    store = store_in(tmp_path)
    learned(store, 1)
    with store.changing(), pytest.raises(ValueError, match="nothing before that"):
        store.undo({})


@pytest.mark.parametrize("call", ["replace", "fsync", "unlink"])
def test_a_change_that_dies_anywhere_leaves_the_old_model_or_the_new_one(
    tmp_path, monkeypatch, call
):
    """Fail at the first system call of a kind, at the second, and so on until none fails."""
    store, seen = store_in(tmp_path), set()
    learned(store, 1)
    true = getattr(os, call)
    for place in count():
        calls = count()

        def failing(*args, calls=calls, place=place, **named):
            if next(calls) == place:
                raise KeyboardInterrupt
            return true(*args, **named)

        before = held(store)
        monkeypatch.setattr(os, call, failing)
        try:
            learned(store, before + 1)
            died = False
        except KeyboardInterrupt:
            died = True
        finally:
            monkeypatch.setattr(os, call, true)
        assert held(store) in (before, before + 1)
        seen.add((died, held(store) - before))
        learned(store, held(store) + 1)  # and the next change works
        versions = [event["version"] for event in store.history()]
        assert versions == sorted(set(versions)) and versions[-1] == store.current()
        if not died:
            break
    assert (False, 1) in seen
    assert call == "unlink" or {(True, 0), (True, 1)} <= seen


def test_one_process_at_a_time(tmp_path):
    store = store_in(tmp_path)
    learned(store, 1)
    with store.changing(), pytest.raises(ValueError, match="Another process is running"):
        learned(store, 2)
    assert held(store) == 1


def test_reading_goes_on_while_somebody_changes_the_model(tmp_path):
    store = store_in(tmp_path)
    learned(store, 1)
    with store.changing():
        assert held(store) == 1


def test_a_model_of_a_later_gateon_is_refused(tmp_path):
    store = store_in(tmp_path)
    learned(store, 1)
    path = tmp_path / "versions" / "000001.safetensors"
    state = checkpoint.load(path)
    checkpoint.save({**state, "about": state["about"] | {"format": FORMAT + 1}}, path)
    with pytest.raises(ValueError, match="made by a newer gateon: update gateon"):
        store.load()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("current", b"\xff", "current is damaged"),
        ("current", b"7", "000007.safetensors is missing"),
        ("versions/000001.safetensors", b"nothing", "000001.safetensors is damaged"),
        ("history.jsonl", b"{", "cannot be read"),
    ],
)
def test_damage_is_told_in_a_sentence(tmp_path, name, content, sentence):
    store = store_in(tmp_path)
    learned(store, 1)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        store.load()
        store.history()


def test_what_a_killed_process_left_out_is_written_by_the_next(tmp_path):
    store = store_in(tmp_path)
    learned(store, 1)
    (tmp_path / "history.jsonl").unlink()
    (tmp_path / "README.md").unlink()
    with store.changing():
        pass
    assert json.loads((tmp_path / "history.jsonl").read_text())["what"] == "lesson 1"
    assert (tmp_path / "README.md").exists()


def test_no_model_is_told_in_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="holds no living model: begin one with gateon learn"):
        store_in(tmp_path / "nothing").load()


def test_a_damaged_version_in_force_says_how_to_go_back(tmp_path):
    store = store_in(tmp_path)
    learned(store, 1)
    (tmp_path / "versions" / "000001.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"000001.safetensors is damaged: put back a copy of it\."):
        store.load()
    (tmp_path / "current").write_text("2")
    checkpoint.save(
        {"about": {"name": "model 2", "parent": 1}, "network": {"weight": torch.full((4,), 2)}},
        tmp_path / "versions" / "000002.safetensors",
    )
    assert learned(store, 3) == 3 and held(store) == 3  # the damaged one is in nobody's way
    (tmp_path / "versions" / "000003.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"or write 2 into .*current"):
        store.about()
    (tmp_path / "current").write_text("2")
    assert held(store) == 2
