"""Tasks of texts whose labels are generated as text: read from a file, encoded, learned and answered by a decoder."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

IGNORED = -100  # as transformers marks what has no loss


@dataclass(frozen=True)
class Example:
    """A text with its label; `options` are all labels of its task."""

    text: str
    label: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    name: str
    train: list[Example]
    validation: list[Example]
    test: list[Example]


def read_tasks(path: Path, names: list[str], texts: int, held_out: int, tests: int) -> list[Task]:
    """The tasks in this order, each a random choice of its rows; a test row without a label ("-") is dropped.

    Args:
        path: JSON lines, gzipped, with task, split (train or test), text and label.
        names: of the tasks.
        texts: to train with, at most.
        held_out: of the training rows, for validation.
        tests: rows to test with, at most.
    """
    rows: dict[tuple[str, str], list[dict[str, str]]] = {}
    with gzip.open(path, "rt") as file:
        for row in map(json.loads, file):
            if row["task"] in names and row["label"] != "-":
                rows.setdefault((row["task"], row["split"]), []).append(row)
    missing = [name for name in names if (name, "train") not in rows]
    if missing:
        raise SystemExit(f"{path} has no task {missing[0]!r}.")
    tasks = []
    for name in names:
        train, test = rows[name, "train"], rows[name, "test"]
        options = tuple(sorted({row["label"] for row in train}))
        for part, seed in ((train, 0), (test, 1)):
            random.Random(seed).shuffle(part)
        known = [row for row in test if row["label"] in options][:tests]
        kept = train[held_out : held_out + texts]
        parts = (kept, train[:held_out], known)
        made = ([Example(r["text"], r["label"], options) for r in part] for part in parts)
        tasks.append(Task(name, *made))
    return tasks


def made_tasks(texts: int, held_out: int, tests: int) -> list[Task]:
    """Three tasks whose labels a tiny model can learn: the first word decides, otherwise in each."""
    words, tasks = ("red", "green", "blue", "grey"), []
    for n, options in enumerate((("a", "b"), ("b", "a"), ("c", "a"))):
        chance = random.Random(n)

        def one(options: tuple[str, ...] = options, chance: random.Random = chance) -> Example:
            word = chance.randrange(4)
            return Example(f"{words[word]} {chance.randrange(9)}", options[word % 2], options)

        parts = ([one() for _ in range(count)] for count in (texts, held_out, tests))
        tasks.append(Task(f"made{n}", *parts))
    return tasks


@dataclass(frozen=True)
class Speller:
    """Turns examples into tokens and back.

    Args:
        words: has encode, decode, eos_token_id and pad_token_id.
        length: tokens of a text at most; a longer one loses its end.
    """

    words: Any
    length: int

    def prompt(self, example: Example) -> list[int]:
        """What the label is generated from."""
        ending = self.words.encode(f"\nOptions: {', '.join(example.options)}\nAnswer:")
        return [*self.words.encode(example.text)[: self.length], *ending]

    def batch(self, examples: list[Example]) -> dict[str, Tensor]:
        """To learn: the loss is that of the label and the end of the text."""
        ids, labels = [], []
        for example in examples:
            prompt = self.prompt(example)
            answer = [*self.words.encode(f" {example.label}"), self.words.eos_token_id]
            ids.append(torch.tensor([*prompt, *answer]))
            labels.append(torch.tensor([*[IGNORED] * len(prompt), *answer]))
        padded = pad_sequence(ids, batch_first=True, padding_value=self.words.pad_token_id)
        lengths = torch.tensor([len(one) for one in ids])
        return {
            "input_ids": padded,
            "attention_mask": (torch.arange(padded.shape[1]) < lengths[:, None]).long(),
            "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
        }

    @torch.no_grad()
    def accuracy(self, model: Any, examples: list[Example], size: int) -> float:
        """The share of examples whose generated text is their label; short texts first, to pad little."""
        right = 0
        for part in split(sorted(examples, key=lambda one: len(one.text)), size):
            prompts = [torch.tensor(self.prompt(example)) for example in part]
            ids = pad_sequence(
                prompts,
                batch_first=True,
                padding_value=self.words.pad_token_id,
                padding_side="left",
            )
            lengths = torch.tensor([len(one) for one in prompts])
            mask = (torch.arange(ids.shape[1]).flip(0) < lengths[:, None]).long()
            longest = max(len(self.words.encode(f" {o}")) for e in part for o in e.options)
            made = model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=longest + 1,
                do_sample=False,
                pad_token_id=self.words.pad_token_id,
                eos_token_id=self.words.eos_token_id,
            )
            for example, row in zip(part, made[:, ids.shape[1] :].tolist(), strict=True):
                ended = (
                    row.index(self.words.eos_token_id) if self.words.eos_token_id in row else None
                )
                right += self.words.decode(row[:ended]).strip() == example.label
        return right / len(examples)


def split(examples: list[Example], size: int) -> Iterator[list[Example]]:
    for start in range(0, len(examples), size):
        yield examples[start : start + size]


def epochs(examples: list[Example], size: int, count: int, seed: int) -> list[list[Example]]:
    """The batches of several passes, each in an order of its own."""
    chance, batches = random.Random(seed), []
    for _ in range(count):
        order = list(examples)
        chance.shuffle(order)
        batches += list(split(order, size))
    return batches
