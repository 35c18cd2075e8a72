"""A task as files that run in a process that cannot import gateon."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gateon
from gateon.cli import main
from gateon.life.export import _check

ALONE = "import sys; sys.modules['gateon'] = None; exec(open('run.py').read())"


def features():
    """Two tasks on the same rows, with a missing number and a word that is new."""
    draw = np.random.default_rng(0)
    heat, wind = draw.normal(20, 5, 240), draw.normal(0, 1, 240)
    columns = {"heat": heat.tolist(), "wind": wind.tolist(), "sky": ["blue", "grey"] * 120}
    columns["wind"][3] = None
    model = gateon.LivingModel()
    warm = ["warm" if h > 20 else "cold" for h in heat]
    model.learn(columns | {"label": warm}, task="heat", epochs=2)
    model.learn(
        columns | {"label": ["up" if w > 0 else "down" for w in wind]}, task="air", epochs=2
    )
    return model


def images():
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 255, (90, 32, 32), dtype=np.uint8)
    pixels[::3, :16] //= 4
    model = gateon.LivingModel()
    names = ["dark" if n % 3 == 0 else "plain" for n in range(90)]
    model.learn((pixels, names), task="photos", epochs=2)
    return model


def texts():
    model = gateon.LivingModel(model="tiny")
    model.learn((["good fan", "bad lamp very slow"] * 40, ["yes", "no"] * 40), task="a", epochs=2)
    return model


@pytest.fixture(scope="module")
def models():
    return {"features": features(), "images": images(), "texts": texts()}


def alone(folder, replaced=(), **files):
    """What the script of an export's README prints, without gateon: label and probability."""
    script = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)[1]
    for old, new in replaced:
        assert old in script
        script = script.replace(old, new)
    (folder / "run.py").write_text(script)
    for write in files.values():
        write()
    words = [sys.executable, "-c", ALONE]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr
    label, probability = done.stdout.split()[-2:]
    return label, float(probability)


@pytest.mark.parametrize("format", ["torch", "onnx"])
@pytest.mark.parametrize(
    "row", [{"heat": 29.0, "wind": -2.0, "sky": "grey"}, {"heat": None, "wind": 0.3, "sky": "red"}]
)
def test_features_are_answered_alike(format, row, models, tmp_path):
    if format == "onnx":
        pytest.importorskip("onnxruntime")
    folder = models["features"].export("air", format, tmp_path / "out")
    said = next(
        iter(models["features"].predict({name: [v] for name, v in row.items()}, task="air"))
    )
    task = json.loads((folder / "task.json").read_text())
    assert task["labels"] == ["down", "up"] and task["categories"]["sky"] == ["blue", "grey"]
    old = re.search(r"row = (.*?)  #", (folder / "README.md").read_text())[1]
    label, probability = alone(folder, [(old, repr(row))])
    assert (label, probability) == (said.label, pytest.approx(said.probability, abs=1e-4))


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_images_are_answered_alike(format, models, tmp_path):
    from PIL import Image

    if format == "onnx":
        pytest.importorskip("onnxruntime")
    folder = models["images"].export(None, format, tmp_path / "out")
    Image.new("L", (40, 30), 90).save(folder / "photo.png")
    said = next(
        iter(models["images"].predict({"image": [str(folder / "photo.png")]}, task="photos"))
    )
    label, probability = alone(folder)
    assert (label, probability) == (said.label, pytest.approx(said.probability, abs=1e-4))


@pytest.mark.parametrize("format", ["torch", "onnx", "hf"])
def test_texts_are_answered_alike(format, models, tmp_path):
    if format == "onnx":
        pytest.importorskip("onnxruntime")
    folder = models["texts"].export("a", format, tmp_path / "out")
    said = next(iter(models["texts"].predict(["a text to sort"], task="a")))
    label, probability = alone(folder)
    assert (label, probability) == (said.label, pytest.approx(said.probability, abs=1e-4))


def test_what_differs_from_the_model_is_refused():
    import torch

    with pytest.raises(ValueError, match=r"differ by 0.1; nothing was kept"):
        _check(torch.tensor([0.5]), torch.tensor([0.6]))


def test_a_failed_export_leaves_nothing(models, tmp_path, monkeypatch):
    from gateon.life import export

    def broken(*_):
        raise ValueError("no")

    monkeypatch.setitem(export.WRITERS, "torch", broken)
    with pytest.raises(ValueError, match="no"):
        models["features"].export("air", "torch", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_bad_wishes_are_refused_in_a_sentence(models, tmp_path, capsys):
    models["features"].save(tmp_path / "weather")
    words = ["export", str(tmp_path / "weather")]
    for more, told in (
        ([], "Which task? Choose one of heat, air."),
        (["--task", "sea"], "There is no task 'sea': choose one of heat, air."),
        (["--task", "air", "--format", "hf"], "The format hf is for models of texts"),
        (["--task", "air", "--out", str(tmp_path)], "already exists: give another one"),
    ):
        assert main([*words, *more]) == 2
        assert told in capsys.readouterr().err
    assert main([*words, "--task", "air"]) == 0
    assert Path(capsys.readouterr().out.strip()) == tmp_path / "weather-air-torch"
    assert (tmp_path / "weather-air-torch" / "model.pt2").is_file()
