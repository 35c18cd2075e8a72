"""The user's own texts: JSON lines, checked row by row."""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from .base import PARTS, Part
from .data.corpus import Corpus, Example, Parts, dealt
from .data.formats import json_lines
from .data.own_files import PART_NAMES

__all__ = ["read_lines"]

# half a character, which JSON can write and no tokenizer can read
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_lines(path: Path, seed: int, largest: int | None = None) -> Corpus:
    """The user's own texts: one object a line with text, label, and maybe second, task and split.

    Labels are whole numbers from 0 up, or names, which are numbered in their sorted order. Where no
    row of a task has a split, a fifth of every class is drawn to test and a tenth to validate;
    where there is none to validate, a tenth of the training texts of every class is held out.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file {path}: give a file of JSON lines with text, label and maybe second, task, split."
        )
    rows: dict[str, list[tuple[Part | None, Example]]] = {}
    labels: list[int | str] = []
    digest = sha256()
    for number, row in enumerate(json_lines(path, largest), 1):
        at = f"Row {number} of {path}"
        _check_row(row, at)
        task, split = row.get("task"), row.get("split")
        held = Example(row["text"], row.get("second"), len(labels))  # until all labels are known
        labels.append(row["label"])
        name = path.name.split(".")[0] if task is None else str(task)
        rows.setdefault(name, []).append((None if split is None else PART_NAMES[split], held))
        digest.update(
            json.dumps(
                [row.get(name) for name in ("task", "split", "text", "second", "label")]
            ).encode()
        )
    if not rows:
        raise ValueError(f"{path} holds no row: give one object a line with text and label.")
    numbered, classes = _numbered(labels, path)
    tasks = {}
    for name, held_rows in rows.items():
        held_rows = [
            (part, example._replace(label=numbered[example.label])) for part, example in held_rows
        ]
        tasks[name] = _parts(held_rows, f"Task {name!r} of {path}", seed, name)
    _refuse_unseen(tasks, classes, path)
    source = {
        "name": "text",
        "from": str(path),
        "sha256": digest.hexdigest(),
        "licence": "the user's own",
        "embedded": False,
    }
    return Corpus(tasks, classes, source)


def _check_row(row: dict[str, Any], at: str) -> None:
    if missing := {"text", "label"} - row.keys():
        raise ValueError(f"{at} has no {' and no '.join(sorted(missing))}.")
    texts = {"text": row["text"]} | ({} if row.get("second") is None else {"second": row["second"]})
    for name, text in texts.items():
        if not isinstance(text, str) or _SURROGATE.search(text):
            raise ValueError(f"{at} has a {name} that is no string of characters: {text!r}.")
        if not text.strip():
            raise ValueError(f"{at} has an empty {name}: give it words or leave the row out.")
    if type(row["label"]) not in (int, str):
        raise ValueError(
            f"{at} has the label {row['label']!r}: labels are whole numbers from 0 up, or names."
        )
    if row.get("split") is not None and str(row["split"]) not in PART_NAMES:
        raise ValueError(f"{at} has the split {row['split']!r}: use train, validation or test.")


def _numbered(labels: list[int | str], path: Path) -> tuple[list[int], list[str]]:
    """Labels as numbers, and what each number means."""
    kinds = {type(label) for label in labels}
    if len(kinds) > 1:
        raise ValueError(
            f"{path} has labels that are numbers and labels that are names: make them alike."
        )
    classes = sorted(set(labels))
    if kinds == {int} and classes != list(range(len(classes))):
        found = f"run from {classes[0]} to {classes[-1]}"
        raise ValueError(f"The labels in {path} {found}: number them from 0 up without a gap.")
    numbers = {label: number for number, label in enumerate(classes)}
    return [numbers[label] for label in labels], [str(label) for label in classes]


def _parts(rows: list[tuple[Part | None, Example]], at: str, seed: int, task: str) -> Parts:
    """The examples of a task, part by part; where the rows do not say, drawn class by class."""
    given = {part for part, _ in rows}
    if None in given and len(given) > 1:
        raise ValueError(f"{at} has rows with a split and rows without: give it to all or to none.")
    if None not in given and (missing := {"train", "test"} - given):
        raise ValueError(
            f"{at} has no {' and no '.join(sorted(missing))} row: a task with splits needs both."
        )
    if "validation" in given:
        return {part: [example for held, example in rows if held == part] for part in PARTS}
    parts: Parts = {
        "train": [],
        "validation": [],
        "test": [example for held, example in rows if held == "test"],
    }
    share = 5 if None in given else 0
    least = 3 if share else 1
    for label in sorted({example.label for held, example in rows if held != "test"}):
        some = [example for held, example in rows if held != "test" and example.label == label]
        if len(some) < least:
            raise ValueError(
                f"{at} has {len(some)} rows of label {label} to divide: give it three, or every row a split."
            )
        chosen = dealt(
            len(some), share, 10 if len(some) > 1 else 0, seed, "text lines", task, label
        )
        for part in PARTS:
            parts[part] += [some[row] for row in chosen[part]]
    return parts


def _refuse_unseen(tasks: dict[str, Parts], classes: list[str], path: Path) -> None:
    trained = {example.label for parts in tasks.values() for example in parts["train"]}
    for name, parts in tasks.items():
        for part in PARTS:
            for example in parts[part]:
                if example.label not in trained:
                    place = f"the {part} part of task {name!r} of {path}"
                    raise ValueError(
                        f"Label {classes[example.label]!r}, in {place}, is in no training part: give it texts to learn from."
                    )
