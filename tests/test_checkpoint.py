"""Checkpoints: what is written comes back, whole or not at all, and nothing in a file is ever run."""

from __future__ import annotations

import json
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from gateon.storage import checkpoint

tensors = st.sampled_from(
    [
        torch.ones(2, 3),
        torch.tensor(4),
        torch.zeros(0),
        torch.arange(6).reshape(2, 3).T,
        torch.ones(2).bfloat16(),
    ]
)
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | tensors
)
keys = st.text() | st.sampled_from(["tensor", "pairs"])
states = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(keys | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


def same(one, other):
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
        )
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and list(one) == list(other)
            and all(same(one[key], other[key]) for key in one)
        )
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@given(state=st.dictionaries(keys, states, max_size=3))
def test_whatever_is_saved_comes_back(state, tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "state.safetensors"
    checkpoint.save(state, path)
    assert same(state, checkpoint.load(path))


def test_a_state_whose_only_key_looks_like_a_mark_comes_back(tmp_path):
    state = {
        "tensor": torch.ones(2),
        "inner": {"tensor": {"pairs": [[1, 2]]}},
        "other": {"pairs": {"tensor": "0"}},
    }
    checkpoint.save(state, tmp_path / "x")
    assert same(state, checkpoint.load(tmp_path / "x"))


def test_tensors_that_share_memory_come_back_apart(tmp_path):
    weight = torch.arange(4.0)
    checkpoint.save({"one": weight, "same": weight, "view": weight[:2]}, tmp_path / "x")
    back = checkpoint.load(tmp_path / "x")
    back["one"][0] = 9
    assert back["same"][0] == 0 and back["view"].tolist() == [0, 1]


@pytest.mark.parametrize("state", [{1: 2}, {None: 2}])
def test_parts_without_names_are_refused(tmp_path, state):
    with pytest.raises(TypeError, match=r"The names of a state's parts must be strings\."):
        checkpoint.save(state, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_a_tensor_of_a_kind_the_format_does_not_have_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"Tensors of a state must be real, got torch\.complex64"):
        checkpoint.save({"x": torch.ones(2, dtype=torch.complex64)}, tmp_path / "x")


@pytest.mark.parametrize("value", [object(), {1, 2}, lambda: 0, b"bytes"])
def test_what_could_not_be_read_without_pickle_is_refused_before_anything_is_written(
    tmp_path, value
):
    with pytest.raises(
        TypeError, match="A state must consist of tensors, numbers, strings, lists and dicts, got"
    ):
        checkpoint.save({"value": [value]}, tmp_path / "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no checkpoint at all"),
        lambda path: path.write_bytes(path.read_bytes()[:-3]),
        lambda path: path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2]),
        lambda path: torch.save({"step": 1}, path),
        lambda path: save_file({"w": torch.ones(1)}, path),
        lambda path: save_file({"w": torch.ones(1)}, path, metadata={"other": "x"}),
        lambda path: save_file({"w": torch.ones(1)}, path, metadata={"state": "{no json"}),
        lambda path: save_file(
            {"w": torch.ones(1)}, path, metadata={"state": json.dumps({"tensor": "7"})}
        ),
        lambda path: save_file(
            {"w": torch.ones(1)}, path, metadata={"state": json.dumps({"tensor": {"a": 1}})}
        ),
        lambda path: save_file(
            {"w": torch.ones(1)}, path, metadata={"state": json.dumps({"pairs": [[1]]})}
        ),
    ],
)
def test_a_damaged_or_foreign_file_is_an_error_that_says_what_to_do(tmp_path, write):
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save({"weight": torch.ones(50), "step": 3}, path)
    write(path)
    before = path.read_bytes()
    with pytest.raises(
        checkpoint.DamagedError,
        match=r"checkpoint.safetensors is damaged or not a gateon checkpoint \(.+\): delete it to start anew\.$",
    ):
        checkpoint.load(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "state"
    checkpoint.save({"step": 1}, path)

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(
        OSError, match=r"state could not be written \(No space left on device\): free some space"
    ):
        checkpoint.save({"step": 2}, path)
    assert checkpoint.load(path) == {"step": 1} and [p.name for p in tmp_path.iterdir()] == [
        "state"
    ]


def test_a_directory_that_is_gone_is_named(tmp_path):
    with pytest.raises(OSError, match=r"gone/state could not be written \(.*[Nn]o such file"):
        checkpoint.save({"weight": torch.ones(2)}, tmp_path / "gone" / "state")


def test_the_file_is_synced_before_it_is_put_in_its_place(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (order.append("sync"), fsync(number)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), replace(a, b)))
    checkpoint.save({"step": 1}, tmp_path / "state")
    # the bytes, the name, the directory that holds the name
    assert order == [
        "sync",
        "replace",
        "sync",
    ]


def test_equal_states_give_equal_bytes_and_any_reader_of_safetensors_finds_the_tensors(tmp_path):
    state = {
        "generator": torch.arange(5, dtype=torch.uint8),
        "weight": torch.eye(3).T[:, 1:],
        "half": torch.ones(3).half(),
    }
    for name in "ab":
        checkpoint.save(state, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(map(str, load_file(tmp_path / "a").values())) == sorted(map(str, state.values()))


def test_some_parts_can_be_read_alone(tmp_path):
    path = tmp_path / "x"
    checkpoint.save({"position": {"step": 3}, "learner": torch.ones(50)}, path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert checkpoint.load(path, only=["position"]) == {"position": {"step": 3}}
    with pytest.raises(checkpoint.DamagedError, match=r"the sha256 of tensor 0 differs"):
        checkpoint.load(path)


def test_every_flipped_bit_is_found(tmp_path):
    path = tmp_path / "x"
    state = {
        "position": {"step": 3, "pairs": {0: "a"}},
        "learner": {"weight": torch.arange(3.0), "on": torch.tensor([True])},
    }
    checkpoint.save(state, path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in (0, 5):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            with pytest.raises(checkpoint.DamagedError):
                checkpoint.load(path)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, -100, -9, -1])
def test_every_truncation_is_found(tmp_path, length):
    path = tmp_path / "x"
    checkpoint.save({"weight": torch.arange(30.0)}, path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(checkpoint.DamagedError):
        checkpoint.load(path)


def test_a_checkpoint_of_a_newer_gateon_is_not_called_damaged(tmp_path, monkeypatch):
    path = tmp_path / "x"
    monkeypatch.setattr(checkpoint, "SCHEMA", 99)
    checkpoint.save({"step": 1}, path)
    monkeypatch.undo()
    with pytest.raises(
        ValueError, match=r"x has schema 99, this gateon reads up to 3: update gateon to read it\.$"
    ) as refused:
        checkpoint.load(path)
    assert not isinstance(refused.value, checkpoint.DamagedError)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "1" * 5000, '{"pairs": [[[], 1]]}', "NaN"]
)
def test_json_of_any_depth_or_length_fails_cleanly(tmp_path, text):
    path = tmp_path / "x"
    save_file({"w": torch.ones(1)}, path, metadata={"state": text})
    with pytest.raises(checkpoint.DamagedError):
        checkpoint.load(path)


def test_a_header_that_announces_more_than_there_is_allocates_nothing(tmp_path):
    path = tmp_path / "x"
    header = b'{"0":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    for length in (len(header), 1 << 62):
        path.write_bytes(length.to_bytes(8, "little") + header + bytes(8))
        with pytest.raises(checkpoint.DamagedError):
            checkpoint.load(path)


def test_of_unwanted_tensors_only_the_shapes_are_read(tmp_path):
    path = tmp_path / "state.safetensors"
    held = {"model": {"gate": torch.ones(2), "weight": torch.ones(3, 4, dtype=torch.float16)}}
    checkpoint.save(held, path)
    model = checkpoint.load(path, wanted=lambda name: name == "gate")["model"]
    assert torch.equal(model["gate"], torch.ones(2))
    assert model["weight"].is_meta and model["weight"].shape == (3, 4)
    assert model["weight"].dtype == torch.float16
