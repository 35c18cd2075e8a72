"""The same story under transformers.Trainer: one line more than plain fine-tuning.

    python examples/tickets_trainer.py

At the end model, gates and availabilities are saved together and loaded again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

import gateon
import gateon.integrations.hf
from gateon.integrations.hf import GateONCallback
from gateon.networks import pretrained
from tickets import PRODUCTS, show, tickets


class Tickets(torch.utils.data.Dataset):
    """What Trainer wants: one dict a ticket."""

    def __init__(self, name: str, *, test: bool) -> None:
        texts, self.labels = tickets(name, test=test)
        self.rows = pretrained.tokenizer()(texts, padding=True, return_tensors="pt")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, n: int) -> dict[str, object]:
        return {key: value[n] for key, value in self.rows.items()} | {"labels": self.labels[n]}


def learn(folder: Path, *, gated: bool) -> tuple[torch.nn.Module, list[list[float]]]:
    """The model, and its accuracy on every product so far, after each."""
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(
        pretrained.find("minilm"), num_labels=2, use_safetensors=True
    )
    usual = {
        "report_to": [],
        "disable_tqdm": True,
        "logging_strategy": "no",
        "save_strategy": "no",
        "use_cpu": True,
    }
    args = TrainingArguments(
        str(folder), num_train_epochs=4, per_device_train_batch_size=16, learning_rate=2e-4, **usual
    )
    rows = []
    for k, name in enumerate(PRODUCTS):
        callbacks = [GateONCallback(context=k)] if gated else []
        trainer = Trainer(
            model=model, args=args, train_dataset=Tickets(name, test=False), callbacks=callbacks
        )
        trainer.train()
        rows.append([accuracy(trainer, j) for j in range(k + 1)])
    return model, rows


def accuracy(trainer: Trainer, k: int) -> float:
    """On the held-out tickets of product k, in its context."""
    if (gates := gateon.gates_of(trainer.model)) is not None:
        gates.show(k)
    found = trainer.predict(Tickets(list(PRODUCTS)[k], test=True))
    return float((found.predictions.argmax(1) == found.label_ids).mean())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        show("plain fine-tuning", learn(Path(folder), gated=False)[1])
        model, rows = learn(Path(folder), gated=True)
        show("with GateONCallback", rows)
        gateon.hf.save_pretrained(model, Path(folder) / "kept")
        loaded = gateon.hf.from_pretrained(Path(folder) / "kept")
        print(
            f"\nsaved and loaded: {loaded.gates.contexts} contexts, {loaded.handle.steps} steps learned"
        )
