"""From a CSV of 1,000 texts to a model that answers: seconds of the two commands, start of the program included.

python benchmarks/living_start.py clinc150.jsonl.gz
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import measure

ROWS, ASKED = 1000, 100


def rows_of(path: Path, part: str) -> list[tuple[str, str]]:
    """Texts and intents of a part, in the order of the file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [
        (line["text"], line["label"])
        for line in lines
        if line["split"] == part and line["task"] != "out of scope"
    ]


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["text", "intent"])
        table.writerows(rows)
    return path


def seconds(folder: Path, *words: str) -> float:
    begin = time.monotonic()
    subprocess.run([sys.executable, "-m", "gateon", *words], cwd=folder, check=True)
    return time.monotonic() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path, help="CLINC150, one JSON object a line, gzipped")
    options = parser.parse_args()
    train, held = rows_of(options.texts, "train"), rows_of(options.texts, "validation")
    names = sorted({label for _, label in train})[:10]
    train = [row for row in train if row[1] in names][:ROWS]
    held = [row for row in held if row[1] in names][:ASKED]
    folder = Path(tempfile.mkdtemp())
    write(folder / "train.csv", train)
    write(folder / "new.csv", held)
    learn = seconds(folder, "learn", "support", "train.csv", "--task", "intents")
    predict = seconds(folder, "predict", "support", "new.csv", "--out", "answers.csv")
    with (folder / "answers.csv").open(encoding="utf-8") as file:
        said = [row["label"] for row in csv.DictReader(file)]
    right = sum(a == b for a, (_, b) in zip(said, held, strict=True)) / len(held)
    result = {
        "texts": len(train),
        "learn": learn,
        "predict": predict,
        "asked": len(held),
        "right": 100 * right,
    }
    print(result)
    settings = {"rows": ROWS, "intents": len(names), "threads": torch.get_num_threads()}
    measure.write(
        "life/start", settings, result, "python benchmarks/living_start.py clinc150.jsonl.gz"
    )


if __name__ == "__main__":
    main()
