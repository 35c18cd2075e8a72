"""The model card of a saved model: what a hub reads of it, and what people do."""

from __future__ import annotations

import re

import pytest
import torch
import transformers
from huggingface_hub import ModelCard

import gateon
import gateon.hf
from gateon.networks import text_classifier
from tiny_language import tiny_model


@pytest.fixture
def base(tmp_path):
    """A model in a directory whose card says what it is."""
    place = tiny_model(tmp_path / "base")
    (place / "README.md").write_text("---\nlicense: mit\nbase_model: someone/tiny\n---\nTiny.\n")
    return place


def gated(place):
    model = transformers.AutoModelForSequenceClassification.from_pretrained(place, num_labels=2)
    gates = gateon.hf.attach(model, contexts=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, gates, gateon.hf.obstruct(optimizer, gates), optimizer


def test_a_hub_can_read_it_and_the_lines_in_it_run(base, tmp_path):
    model, gates, handle, optimizer = gated(base)
    gates.switch(1)
    model(torch.tensor([[5, 6, 7]]), labels=torch.tensor([1])).loss.backward()
    optimizer.step()
    gateon.hf.save_pretrained(model, tmp_path / "kept")
    card = ModelCard.load(tmp_path / "kept" / "README.md")
    assert card.data.to_dict() == {
        "license": "mit",
        "base_model": "someone/tiny",
        "library_name": "transformers",
        "tags": ["continual-learning", "gateon"],
    }
    assert "# BertForSequenceClassification with 3 contexts" in card.text
    assert "Licence: mit, that of someone/tiny." in card.text
    rows = dict(re.findall(r"^\| (\d) \| 100% \| ([\d.]+) \|$", card.text, re.MULTILINE))
    assert list(rows) == ["0", "1", "2"] and rows["0"] == rows["2"] == "0.000" < rows["1"]
    share = sum(one.room for one in handle.saturation().values()) / len(handle.saturation())
    assert f"Room left for further tasks: {share:.0%}" in card.text
    (code,) = re.findall(r"```python\n(.*?)```", card.text, re.DOTALL)
    found = {}
    exec(code.replace("directory of this model", str(tmp_path / "kept")), found)
    assert found["gates"].contexts == 3 and found["handle"].steps == 1


def test_what_was_written_by_hand_stays(base, tmp_path):
    model, gates, _, _ = gated(base)
    kept = tmp_path / "kept"
    gateon.hf.save_pretrained(model, kept)
    card = ModelCard.load(kept / "README.md")
    card.text += "\nTrained on tickets.\n"
    card.data.license, card.data.language = "gpl-3.0", "en"
    card.save(kept / "README.md")
    gates.add_context()
    gateon.hf.save_pretrained(model, kept)
    again = ModelCard.load(kept / "README.md")
    assert again.text.count("with 4 contexts") == 1 and "with 3 contexts" not in again.text
    assert again.text.endswith("Trained on tickets.\n")
    assert (again.data.license, again.data.language) == ("gpl-3.0", "en")


def test_an_unknown_licence_is_not_made_up(tmp_path):
    model = text_classifier(tiny_model(tmp_path / "bare"), 2)
    gateon.hf.attach(model)
    gateon.hf.save_pretrained(model, tmp_path / "kept")
    card = ModelCard.load(tmp_path / "kept" / "README.md")
    assert card.data.license is None and card.data.base_model is None
    assert "Licence: that of the base model; see there." in card.text


def test_trainer_writes_it_too(base, tmp_path):
    pytest.importorskip("accelerate")
    model, *_ = gated(base)
    args = transformers.TrainingArguments(str(tmp_path / "out"), use_cpu=True, report_to=[])
    callback = gateon.hf.GateONCallback(0)
    transformers.Trainer(model=model, args=args, callbacks=[callback]).save_model()
    assert "with 3 contexts" in (tmp_path / "out" / "README.md").read_text()
