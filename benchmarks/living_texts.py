"""150 intents of ten domains that arrive in turn (CLINC150): the living model, and what it is compared with.

    python benchmarks/living_texts.py ../shared/data/intents/clinc150.jsonl.gz
    python benchmarks/living_texts.py ../shared/data/intents/clinc150.jsonl.gz --finetune

Every model learns the domains one after the other in an order that the seed decides, without any
sample of an earlier one, and then answers all 4,500 test texts: domain told, or not. "joint" learns
all at once. Test texts were scored once; settings were chosen on validation texts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import measure
from gateon import LivingModel
from gateon.detection.recogniser import Recogniser
from gateon.life.sentences import Sentences
from gateon.networks.mlp import mlp
from gateon.networks.text import text_classifier

OUTSIDE = "out of scope"
Row = dict[str, str]


class Texts:
    """Texts of one part, and which row (a label of a domain) each has; -1 if out of scope."""

    def __init__(self, rows: list[Row], part: str, domains: list[str]) -> None:
        kept = [r for r in rows if r["split"] == part and r["task"] in (*domains, OUTSIDE)]
        kept = kept if part == "test" else [r for r in kept if r["task"] != OUTSIDE]
        labels = sorted(
            {(domains.index(r["task"]), r["label"]) for r in rows if r["task"] in domains}
        )
        place = {label: n for n, label in enumerate(labels)}
        self.rows, self.text = kept, [r["text"] for r in kept]
        number = [domains.index(r["task"]) if r["task"] in domains else -1 for r in kept]
        self.domain = torch.tensor(number)
        self.row = torch.tensor(
            [place.get((n, r["label"]), -1) for n, r in zip(number, kept, strict=True)]
        )
        self.owner = torch.tensor([domain for domain, _ in labels])


def scored(scores: Tensor, test: Texts) -> dict[str, float]:
    """Accuracy from one score for each row, in percent, and AUROC of the highest one."""
    inside = test.row >= 0
    own, row, domain = scores[inside], test.row[inside], test.domain[inside]
    told = own.masked_fill(test.owner[None] != domain[:, None], -torch.inf)
    found = own.argmax(1)
    return {
        "untold": percent(found == row),
        "told": percent(told.argmax(1) == row),
        "domain": percent(test.owner[found] == domain),
        "auroc": auroc(scores.amax(1), inside),
    }


def percent(right: Tensor) -> float:
    return 100 * right.double().mean().item()


def auroc(score: Tensor, inside: Tensor) -> float:
    """How often a text in scope scores higher than one out of scope."""
    within, without = score[inside].double(), score[~inside].double()
    above = (within[:, None] > without).double() + (within[:, None] == without).double() / 2
    return above.mean().item()


def living(rows: list[Row], domains: list[str], test: Texts, seed: int) -> dict[str, Any]:
    """`LivingModel`, ten times `learn`."""
    model, then = LivingModel(seed=seed), {}
    of = {d: [r for r in rows if r["task"] == d] for d in domains}
    inside = [r for r in test.rows if r["task"] != OUTSIDE]

    def told(domain: str) -> float:
        own = [r for r in inside if r["task"] == domain]
        answers = model.predict([r["text"] for r in own], task=domain)
        return 100 * statistics.mean(
            a == r["label"] for a, r in zip(answers.labels, own, strict=True)
        )

    seconds = 0.0
    for domain in domains:
        begin = time.monotonic()
        parts = ("train", "validation")
        table = [
            {"text": r["text"], "label": r["label"], "split": r["split"]}
            for r in of[domain]
            if r["split"] in parts
        ]
        model.learn(table, task=domain)
        seconds += time.monotonic() - begin
        then[domain] = told(domain)
        print(f"  {domain}: {then[domain]:.2f} told", flush=True)
    now = {domain: told(domain) for domain in domains}
    answers = model.predict(test.text)
    right = [a == r["label"] for a, r in zip(answers.labels, test.rows, strict=True)]
    whose = [a == r["task"] for a, r in zip(answers.tasks, test.rows, strict=True)]
    scope = test.row >= 0
    known = torch.from_numpy(answers.known)
    return {
        "untold": percent(torch.tensor(right)[scope]),
        "told": statistics.mean(now.values()),
        "domain": percent(torch.tensor(whose)[scope]),
        "auroc": auroc(torch.from_numpy(answers.probabilities), scope),
        "in scope accepted": percent(known[scope]),
        "out of scope refused": percent(~known[~scope]),
        "forgetting": {d: then[d] - now[d] for d in domains},
        "largest forgetting": max(then[d] - now[d] for d in domains),
        "mean forgetting": statistics.mean(then[d] - now[d] for d in domains),
        "certainty": 100 * float(answers.certainty[scope.numpy()].mean()),
        "seconds to learn": seconds,
    }


def ridge(x: Tensor, train: Texts, z: Tensor, test: Texts, seed: int) -> dict[str, Any]:
    """Streaming ridge on random features, as RanPAC without its first phase."""
    recogniser = Recogniser(x.shape[1], seed=seed)
    for domain in range(int(train.domain.max()) + 1):
        own = train.domain == domain
        recogniser.add(x[own], train.row[own], domain)
    return scored(recogniser.scores(z), test)


def nearest(x: Tensor, train: Texts, z: Tensor, test: Texts) -> dict[str, Any]:
    """The nearest class mean, by cosine."""
    means = torch.stack(
        [F.normalize(x[train.row == r].mean(0), dim=0) for r in range(len(train.owner))]
    )
    return scored(F.normalize(z) @ means.T, test)


def joint_frozen(x: Tensor, train: Texts, z: Tensor, test: Texts, seed: int) -> dict[str, Any]:
    """A plain network on all 150 intents at once, on the same vectors as the living model's."""
    torch.manual_seed(seed)
    network = mlp(
        x.shape[1], (1000,), len(train.owner), norm="none", input_dropout=0.5, dropout=0.5
    )
    descend(network, x, train.row, len(train.owner), epochs=20, lr=1e-3)
    with torch.no_grad():
        return scored(network.eval()(z).log_softmax(1), test)


def descend(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    rows: int,
    epochs: int,
    lr: float,
    told: Callable[[str], None] = lambda words: None,
) -> None:
    """Adam with a rate that rises and falls; only the first `rows` outputs take part."""
    steps = epochs * (len(x) // 32)
    optimizer = torch.optim.AdamW(network.parameters(), lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, lr, total_steps=steps + 1, pct_start=0.1, anneal_strategy="linear"
    )
    network.train()
    for epoch in range(epochs):
        for some in torch.randperm(len(x)).split(32)[: len(x) // 32]:
            loss = F.cross_entropy(network(x[some])[:, :rows], y[some])
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        told(f"  epoch {epoch + 1} of {epochs}, loss {loss.item():.3f}")


def finetuned(train: Texts, test: Texts, seed: int, epochs: int, joint: bool) -> dict[str, Any]:
    """The whole encoder trained with one head: all at once, or domain after domain as it grows."""
    sentences = Sentences("minilm")
    torch.manual_seed(seed)
    network = text_classifier("minilm", len(train.owner))
    ids = {part: sentences._ids([(t, None) for t in part.text])[:, :40] for part in (train, test)}
    for number in [None] if joint else range(int(train.domain.max()) + 1):
        own = (
            torch.ones(len(train.row), dtype=torch.bool)
            if number is None
            else train.domain == number
        )
        rows = 1 + int(train.row[own].max())
        descend(
            network,
            ids[train][own],
            train.row[own],
            rows,
            epochs,
            2e-4,
            lambda w: print(w, flush=True),
        )
    network.eval()
    with torch.no_grad():
        scores = torch.cat([network(some).log_softmax(1) for some in ids[test].split(256)])
    return scored(scores, test)


def frozen(
    rows: list[Row], domains: list[str], seed: int
) -> dict[str, Callable[[], dict[str, Any]]]:
    """What leaves the encoder as it is."""
    train, test = Texts(rows, "train", domains), Texts(rows, "test", domains)
    sentences = Sentences("minilm")
    x, z = (sentences.vectors([(t, None) for t in part.text]) for part in (train, test))
    last, last_z = (F.normalize(v[:, -384:]) * 384**0.5 for v in (x, z))
    return {
        "living model": lambda: living(rows, domains, test, seed),
        "ridge, four layers": lambda: ridge(x, train, z, test, seed),
        "ridge, last layer": lambda: ridge(last, train, last_z, test, seed),
        "nearest class mean, four layers": lambda: nearest(x, train, z, test),
        "nearest class mean, last layer": lambda: nearest(last, train, last_z, test),
        "joint, on four frozen layers": lambda: joint_frozen(x, train, z, test, seed),
    }


def encoders(
    rows: list[Row], domains: list[str], seed: int, epochs: int
) -> dict[str, Callable[[], dict[str, Any]]]:
    """What trains the encoder."""
    train, test = Texts(rows, "train", domains), Texts(rows, "test", domains)
    return {
        "fine-tuned, joint": lambda: finetuned(train, test, seed, epochs, joint=True),
        "fine-tuned, growing head": lambda: finetuned(train, test, seed, epochs, joint=False),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--finetune", action="store_true", help="the rows that train the encoder")
    parser.add_argument("--epochs", type=int, default=3, help="of fine-tuning")
    options = parser.parse_args()
    with gzip.open(options.data, "rt") as lines:
        rows: list[Row] = [json.loads(line) for line in lines]
    result: dict[str, list[dict[str, Any]]] = {}
    for seed in range(1 if options.finetune else options.seeds):
        domains = sorted({r["task"] for r in rows} - {OUTSIDE})
        random.Random(seed).shuffle(domains)
        made = (
            encoders(rows, domains, seed, options.epochs)
            if options.finetune
            else frozen(rows, domains, seed)
        )
        for name, run in made.items():
            begin = time.monotonic()
            found = run() | {"order": domains}
            found["seconds"] = time.monotonic() - begin
            result.setdefault(name, []).append(found)
            shown = ", ".join(f"{k} {v:.4g}" for k, v in found.items() if isinstance(v, float))
            print(f"{name}, seed {seed}: {shown}", flush=True)
    home = "life/texts-finetuned" if options.finetune else "life/texts"
    extra = " --finetune" if options.finetune else ""
    settings = {"model": "minilm", "seeds": 1 if options.finetune else options.seeds}
    if options.finetune:
        settings |= {"epochs": options.epochs, "lr": 2e-4, "batch": 32}
    measure.write(
        home, settings, result, f"python benchmarks/living_texts.py clinc150.jsonl.gz{extra}"
    )


if __name__ == "__main__":
    main()
