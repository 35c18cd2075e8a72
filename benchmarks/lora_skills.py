"""One decoder learns tasks of texts in turn through LoRA: GateON on ranks, sequential LoRA, O-LoRA, and a LoRA for each task.

    python benchmarks/lora_skills.py --texts text10.jsonl.gz
    python benchmarks/lora_skills.py --texts text10.jsonl.gz --validate --methods gateon --lr 1e-3
    python benchmarks/lora_skills.py --model tiny --place /tmp/skills --dry        to try it

The label is generated as text, and counts if it is exactly right. All methods have the same total
rank, the same texts in the same order, and a new AdamW for every task. What is learned is saved
after every task, and the same command goes on from there. --validate measures on texts held out of
training, for choosing settings, and writes no record.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import peft
import torch
from torch import Tensor

import gateon.integrations.hf
import measure
from gateon.methods.language.olora import OLoRA
from gateon.storage import checkpoint
from lora_models import decoder, tokenizer
from text_tasks import Speller, Task, epochs, made_tasks, read_tasks

METHODS = ("gateon", "sequential", "o-lora", "separate")
TASKS = ("sst2", "agnews", "rte", "qqp", "amazon")


@dataclass(frozen=True)
class Settings:
    """What decides the result of a method."""

    method: str
    model: str
    tasks: tuple[str, ...]
    train: int
    test: int
    on: str
    epochs: int
    batch: int
    length: int
    rank: int
    ranks: int
    lr: float
    per: str
    rate: float
    reuse: bool
    strength: float
    seed: int


class Student:
    """A decoder with adapters that learns by one of the methods.

    Args:
        settings: which one, and how.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.base = decoder(settings.model)
        self.handle: gateon.Obstruction | None = None
        self.gates: gateon.Gates | None = None
        self.olora: OLoRA | None = None
        self._adopt: Callable[[Any], None] = lambda optimizer: None
        self.model = self._adapted(
            settings.ranks if settings.method == "separate" else settings.rank
        )
        if settings.method == "gateon":
            self.gates = gateon.hf.attach(
                self.model,
                len(settings.tasks),
                ranks_per_task=settings.ranks,
                reuse=settings.reuse,
                seed=settings.seed,
            )
        elif settings.method == "o-lora":
            self.olora = OLoRA(ranks=settings.ranks, strength=settings.strength)
            self._adopt = self.olora.prepare(self.model)

    def _adapted(self, rank: int) -> Any:
        torch.manual_seed(self.settings.seed)
        config = peft.LoraConfig(
            task_type="CAUSAL_LM", r=rank, lora_alpha=2 * rank, target_modules="all-linear"
        )
        return peft.get_peft_model(self.base, config)

    def begin(self, task: int) -> torch.optim.Optimizer:
        """A new optimizer, and for `separate` new adapters."""
        if self.settings.method == "separate" and task:
            self.base = self.model.unload()
            self.model = self._adapted(self.settings.ranks)
        if self.gates is not None:
            self.gates.switch(task)
        optimizer = torch.optim.AdamW(
            [p for p in self.model.parameters() if p.requires_grad],
            lr=self.settings.lr,
            weight_decay=0.0,
        )
        if self.gates is not None and self.handle is None:
            view: Any = self.settings.per
            self.handle = gateon.hf.obstruct(
                optimizer, self.gates, per=view, rate=self.settings.rate
            )
        elif self.handle is not None:
            self.handle.follow(optimizer)
        self._adopt(optimizer)
        self.model.train()
        return optimizer

    def step(self, batch: dict[str, Tensor], optimizer: torch.optim.Optimizer) -> float:
        loss = self.model(**batch).loss
        penalty = None if self.olora is None else self.olora.penalty(self.model)
        (loss if penalty is None else loss + penalty).backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    def show(self, task: int) -> None:
        self.model.eval()
        if self.gates is not None:
            self.gates.show(task)

    def end(self, task: int) -> None:
        if self.olora is not None:
            self.olora.end_task(self.model, task)

    def state(self) -> dict[str, Any]:
        named = self.model.named_parameters()
        return {
            "weights": {name: p.detach() for name, p in named if p.requires_grad},
            "availability": None if self.handle is None else self.handle.state_dict(),
            "method": {} if self.olora is None else self.olora.state_dict(),
        }

    def resume(self, state: dict[str, Any], task: int) -> None:
        with torch.no_grad():
            for name, weight in state["weights"].items():
                self.model.get_parameter(name).copy_(weight)
        if state["availability"] is not None:
            self.begin(task)  # makes the handle
            assert self.handle is not None
            self.handle.load_state_dict(state["availability"])
        if self.olora is not None:
            self.olora.load_state_dict(state["method"])


def taught(settings: Settings, tasks: list[Task], place: Path) -> dict[str, Any]:
    """Teach all tasks; the accuracy on each right after it was learned, and after the last."""
    student, speller = Student(settings), Speller(tokenizer(settings.model), settings.length)
    path = (
        place / f"{settings.method}-{sha256(repr(settings).encode()).hexdigest()[:12]}.safetensors"
    )
    found: dict[str, Any] = {"learned": [], "seconds": 0.0}
    if path.is_file():
        state = checkpoint.load(path)
        found = state["found"]
        if "after" in found:
            print(f"{settings.method}: done before")
            return found
        student.resume(state["student"], len(found["learned"]) - 1)
        print(f"{settings.method}: goes on with task {len(found['learned'])}")

    def accuracy(task: int) -> float:
        student.show(task)
        rows = tasks[task].test if settings.on == "test" else tasks[task].validation
        return 100 * speller.accuracy(student.model, rows, 2 * settings.batch)

    for n in range(len(found["learned"]), len(tasks)):
        start, optimizer = time.perf_counter(), student.begin(n)
        batches = epochs(tasks[n].train, settings.batch, settings.epochs, settings.seed + n)
        for k, examples in enumerate(batches, 1):
            loss = student.step(speller.batch(examples), optimizer)
            if k % 10 == 0 or k == len(batches):
                each = (time.perf_counter() - start) / k
                left = each * (len(batches) - k) / 60
                print(
                    f"{settings.method:10} {tasks[n].name:8} step {k}/{len(batches)}  loss {loss:.3f}"
                    f"  {each:.1f} s a step, {left:.0f} min left of this task",
                    flush=True,
                )
        found["seconds"] += time.perf_counter() - start
        student.end(n)
        found["learned"].append(accuracy(n))
        print(f"{settings.method:10} {tasks[n].name:8} {found['learned'][-1]:.1f} %", flush=True)
        place.mkdir(parents=True, exist_ok=True)
        checkpoint.save({"found": found, "student": student.state()}, path)
    alone = settings.method == "separate"
    found["after"] = found["learned"] if alone else [accuracy(n) for n in range(len(tasks))]
    checkpoint.save({"found": found, "student": student.state()}, path)
    return found


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Averages over tasks: accuracy after the last, and what was lost since each was learned."""
    count = len(found["after"])
    lost = [a - b for a, b in zip(found["learned"], found["after"], strict=True)]
    return {
        "accuracy": sum(found["after"]) / count,
        "learned": found["learned"],
        "after": found["after"],
        "forgetting": sum(lost[:-1]) / max(1, count - 1),
        "seconds": found["seconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--texts", type=Path, help="JSON lines, gzipped: task, split, text, label")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--train", type=int, default=400, help="texts of each task")
    parser.add_argument("--test", type=int, default=200)
    parser.add_argument("--held-out", type=int, default=100, help="of the training texts")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=96, help="tokens of a text at most")
    parser.add_argument("--rank", type=int, default=64, help="of all tasks together")
    parser.add_argument("--ranks", type=int, default=8, help="of each task")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--per", choices=("unit", "parameter"), default="unit")
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--reuse", action="store_true")
    parser.add_argument("--strength", type=float, default=0.5, help="of O-LoRA's penalty")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--place", type=Path, default=Path("runs/lora-skills"))
    parser.add_argument("--validate", action="store_true", help="measure on held-out texts")
    parser.add_argument("--dry", action="store_true", help="write no record")
    options = parser.parse_args()
    if options.texts is None:
        if options.model != "tiny":
            parser.error("--texts is needed for any model but tiny.")
        tasks = made_tasks(options.train, options.held_out, options.test)
    else:
        tasks = read_tasks(
            options.texts, list(options.tasks), options.train, options.held_out, options.test
        )
    shared = {
        "model": options.model,
        "tasks": tuple(task.name for task in tasks),
        "on": "validation" if options.validate else "test",
    }
    names = ("train", "test", "epochs", "batch", "length", "rank", "ranks", "lr", "per", "rate")
    shared |= {name: getattr(options, name) for name in (*names, "reuse", "strength", "seed")}
    result = {}
    for method in options.methods:
        result[method] = summary(taught(Settings(method=method, **shared), tasks, options.place))
    print(
        f"{'':12} {'accuracy':>9} {'forgotten':>10}   after the last: {', '.join(shared['tasks'])}"
    )
    for method, row in result.items():
        after = " ".join(f"{value:6.1f}" for value in row["after"])
        print(f"{method:12} {row['accuracy']:9.1f} {row['forgetting']:10.1f}   {after}")
    if options.dry or options.validate:
        return
    settings = asdict(Settings(method=", ".join(options.methods), **shared))
    command = "python benchmarks/lora_skills.py --texts text10.jsonl.gz"
    measure.write("language/lora-skills", settings, result, command)


if __name__ == "__main__":
    main()
