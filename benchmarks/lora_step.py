"""A step of LoRA whose ranks are gated beside one of plain LoRA of the same total rank, and generation in 16 contexts beside one.

    python benchmarks/lora_step.py [--rounds 10]
    python benchmarks/lora_step.py --model tiny --rounds 2 --dry     to try it; nothing is written

Every Linear of a decoder has adapters of rank 64, trained with AdamW; the loss is that of the next
token. Memory is the peak of a process that takes three steps, the model and libraries included.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import torch

import gateon.integrations.hf
import measure
from lora_models import decoder

RANK, OPEN, SAMPLES = 64, 8, 16
# Ranks that are open and the view of availability, by variant; None: plain LoRA.
VARIANTS: dict[str, tuple[int, str] | None] = {
    "plain": None,
    "64 of 64 ranks per unit": (RANK, "unit"),
    "8 of 64 ranks per unit": (OPEN, "unit"),
    "8 of 64 ranks per parameter": (OPEN, "parameter"),
}


def stepping(name: str, kind: str, batch: int, length: int) -> Callable[[], None]:
    """A step of one variant, with availabilities below 1 where ranks are used again."""
    torch.manual_seed(0)
    base, gated = decoder(name), VARIANTS[kind]
    ids = torch.randint(3, base.config.vocab_size, (batch, length))
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"
    )
    model: Any = peft.get_peft_model(base, config)
    gates = None
    if gated is not None:
        gates = gateon.hf.attach(model, contexts=2, ranks_per_task=gated[0])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    if gated is not None and gates is not None:
        gateon.hf.obstruct(optimizer, gates, per=gated[1])  # type: ignore[arg-type]
    model.train()

    def run() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    run()
    if gates is not None:
        gates.switch(1)
    return run


def generating(name: str, tokens: int) -> dict[str, Callable[[], None]]:
    """Generation for a batch of prompts in one context, and with a context for each."""
    torch.manual_seed(0)
    made = gateon.hf.lora(decoder(name), RANK, OPEN, contexts=SAMPLES, target_modules="all-linear")
    model = made.model
    model.eval()
    with torch.no_grad():
        for parameter in (p for n, p in model.named_parameters() if n.endswith("B.default.weight")):
            parameter.normal_(0, 1e-3)
    ids = torch.randint(3, model.config.vocab_size, (SAMPLES, 32))
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False}

    def run(contexts: int | list[int]) -> None:
        with gateon.hf.in_contexts(model, contexts):
            model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **options
            )

    return {"one context": lambda: run(3), "16 contexts": lambda: run(list(range(SAMPLES)))}


def memory(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Peak resident memory in MB, each variant in a process of its own."""
    found = {kind: _memory_of(kind, options) for kind in VARIANTS}
    return {kind: {"MB": mb, "ratio": mb / found["plain"]} for kind, mb in found.items()}


def _memory_of(kind: str, options: argparse.Namespace) -> float:
    shape = ["--batch", str(options.batch), "--length", str(options.length)]
    command = [sys.executable, __file__, "--model", options.model, *shape, "--memory", kind]
    return float(
        subprocess.run([*command, "--dry"], capture_output=True, text=True, check=True).stdout
    )


def _use_memory(kind: str, options: argparse.Namespace) -> None:
    run = stepping(options.model, kind, options.batch, options.length)
    for _ in range(2):
        run()
    # Not getrusage: its peak begins with that of the process that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    print(int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--dry", action="store_true", help="write no record")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        _use_memory(options.memory, options)
        return
    steps = {
        kind: stepping(options.model, kind, options.batch, options.length) for kind in VARIANTS
    }
    table = measure.ratios(measure.interleaved(steps, options.rounds, warm_up=1), "plain")
    measure.show(table)
    steps.clear()
    serving = generating(options.model, options.tokens)
    served = measure.ratios(measure.interleaved(serving, options.rounds, warm_up=1), "one context")
    measure.show(served)
    used = memory(options)
    for kind, row in used.items():
        print(f"{kind:44} {row['ratio']:7.3f}  {row['MB']:8.1f} MB")
    if options.dry:
        return
    settings = {
        "model": options.model,
        "batch": options.batch,
        "length": options.length,
        "optimizer": "AdamW",
        "rounds": options.rounds,
        "adapted": "every Linear but the output",
        "generation": f"{SAMPLES} prompts of 32 tokens, {options.tokens} new tokens, greedy",
    }
    result = {"step": table, "generation": served, "memory": used}
    command = "python benchmarks/lora_step.py"
    measure.write("cost/lora-step", settings, result, command)


if __name__ == "__main__":
    main()
