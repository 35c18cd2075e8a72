"""The README of an exported task: lines of code that run."""

from __future__ import annotations

from ..storage.files import printable
from .encode_features import FeatureEncoder
from .encode_images import ImageEncoder
from .knowledge import Knowledge
from .task import Task

__all__ = ["manual"]

TEXTS = """from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("."{trust})
read = tokenizer(["a text to sort"], padding=True, truncation=True, max_length=task["longest"],
                 return_tensors="{tensors}")
inputs = {{name: read[name] for name in ("input_ids", "attention_mask")}}"""
IMAGES = """from PIL import Image, ImageOps
image = Image.open("photo.png").convert("{mode}")
image = ImageOps.pad(image, (task["size"], task["size"]), Image.Resampling.BILINEAR)
pixels = numpy.asarray(image, "float32").reshape(task["size"], task["size"], task["channels"])
inputs = {{"images": pixels.transpose(2, 0, 1)[None] / 255}}"""
FEATURES = """row = {row}  # None: missing
numbers = [[float("nan") if row.get(name) is None else row[name] for name in task["numbers"]]]
places = [[len(words) + 1 if row.get(name) is None else
           words.index(row[name]) if row[name] in words else len(words)
           for name, words in task["categories"].items()]]
inputs = {{"numbers": numpy.array(numbers, "float64"),
          "categories": numpy.array(places, "int64").reshape(1, -1)}}"""
RUN = {
    "torch": """import torch
model = torch.export.load("model.pt2").module()
with torch.no_grad():
    found = model(**{name: torch.as_tensor(value) for name, value in inputs.items()}).numpy()""",
    "onnx": """import onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
found = session.run(None, inputs)[0]""",
    "hf": """from transformers import AutoModelForSequenceClassification
model = AutoModelForSequenceClassification.from_pretrained(".", trust_remote_code=True)
found = model(**inputs).logits.detach().numpy()""",
}


def manual(knowledge: Knowledge, task: Task, format: str) -> str:
    """How to use an exported task, from inside its directory."""
    encoder = knowledge.front.encoder
    if isinstance(encoder, ImageEncoder):
        prepare = IMAGES.format(mode="L" if encoder.channels == 1 else "RGB")
    elif isinstance(encoder, FeatureEncoder):
        row = dict.fromkeys(encoder.numbers, 1.0) | {
            name: words[0] if words else None for name, words in encoder.categories.items()
        }
        prepare = FEATURES.format(row=row)
    else:
        trust = ", trust_remote_code=True" if format == "hf" else ""
        prepare = TEXTS.format(tensors="np" if format == "onnx" else "pt", trust=trust)
    script = "\n".join(
        [
            "import json, numpy",
            'task = json.load(open("task.json", encoding="utf-8"))',
            prepare,
            RUN[format],
            'print(task["labels"][found[0].argmax()], numpy.exp(found[0].max()))',
        ]
    )
    accuracy = "" if task.now is None else f" Accuracy on held-out rows: {task.now:.1%}."
    return (
        f"# {printable(task.name)}\n\n"
        f"One task of a model made with gateon; nothing of gateon is needed to run it.{accuracy}\n"
        f"Labels: {', '.join(map(printable, task.labels))}.\n\n"
        f"```python\n{script}\n```\n"
    )
