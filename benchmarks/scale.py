"""What gates and availabilities cost at 1B, 8B and 70B parameters: bytes counted on tensors that hold none.

    python benchmarks/scale.py

Models of these sizes are built on torch's meta device from the sizes of published Llamas, and get
gates and obstruction by the same `attach` and `obstruct` as any other. A step then really runs, on
meta tensors: every operation is seen, with the bytes it reads and writes, and every tensor kept for
the backward pass. Blocks are alike, so that every count is a straight line in their number: the two
large models are counted with two and with four. What hooks ask of a number (is the relevance finite?) is answered with 1. Beside
them a small model of the same kind is counted on meta and on the CPU, where its memory is measured.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

import gateon
import measure
from gateon.availability import ledgers

# Sizes of Llama 3.2 1B, Llama 3.1 8B and 70B, and of a small one that fits anywhere.
SIZES = {
    "small": (256, 704, 4, 8, 4, 1000),
    "1B": (2048, 8192, 16, 32, 8, 128256),
    "8B": (4096, 14336, 32, 32, 8, 128256),
    "70B": (8192, 28672, 80, 64, 8, 128256),
}
VIEWS = {"n": "unit", "p": "parameter", "LoRA, n": "unit", "LoRA, p": "parameter"}
RANK, TOKENS = 16, (16, 48)
CONTEXTS = 10_000
WHOLE = ("small", "1B")  # counted block by block


class Counted(TorchDispatchMode):
    """Counts the bytes that operations read and write; views move none."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return 1.0 if args[0].is_floating_point() else 1
        made = func(*args, **(kwargs or {}))
        shown = func._schema.returns
        if not any(one.alias_info is not None and not one.alias_info.is_write for one in shown):
            read = torch.utils._pytree.tree_leaves((args, kwargs))
            written = torch.utils._pytree.tree_leaves(made)
            self.moved += sum(bytes_of(t) for t in (*read, *written) if torch.is_tensor(t))
        return made


@contextmanager
def answered() -> Iterator[None]:
    """Lists of meta tensors are ones."""
    real = torch.Tensor.tolist
    torch.Tensor.tolist = lambda t: [1.0] * t.numel() if t.is_meta else real(t)
    try:
        yield
    finally:
        torch.Tensor.tolist = real


def bytes_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def llama(size: str, device: str, lora: bool, layers: int | None = None) -> nn.Module:
    hidden, inner, all_layers, heads, pairs, words = SIZES[size]
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers or all_layers,
        num_attention_heads=heads,
        num_key_value_heads=pairs,
        vocab_size=words,
        tie_word_embeddings=size == "1B",
    )
    with torch.device(device):
        model = LlamaForCausalLM(config).to(torch.bfloat16 if device == "meta" else torch.float32)
        if lora:
            wanted = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
            model = get_peft_model(model, LoraConfig(r=RANK, target_modules=wanted))
    return model


def saved_bytes(model: nn.Module, tokens: torch.Tensor) -> tuple[int, torch.Tensor]:
    """What a forward pass keeps for the backward pass, without parameters; and its loss."""
    kept: dict[int, torch.Tensor] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    known = {p.untyped_storage()._cdata for p in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = model(input_ids=tokens).logits.float().mean()
    return sum(t.untyped_storage().nbytes() for k, t in kept.items() if k not in known), loss


def a_token(model: nn.Module, device: str) -> tuple[float, float]:
    """Bytes that both passes move, and that they keep, for each further token; gradients stay."""
    found = []
    for tokens in TOKENS:
        model.zero_grad()
        with Counted() as passes:
            kept, loss = saved_bytes(model, batch(tokens, device))
            loss.backward()
        found.append((passes.moved, kept))
    (moved, kept), (moved_more, kept_more) = found
    more = TOKENS[1] - TOKENS[0]
    return (moved_more - moved) / more, (kept_more - kept) / more


def batch(tokens: int, device: str) -> torch.Tensor:
    return torch.zeros(2, tokens // 2, dtype=torch.long, device=device)


def by_layers(size: str, view: str) -> dict[str, float]:
    """The same as `counted`, from two and four blocks."""
    few, more = (counted(size, view, layers=layers) for layers in (2, 4))
    steps = (SIZES[size][2] - 2) / 2
    return {name: few[name] + steps * (more[name] - few[name]) for name in few}


def counted(
    size: str, view: str, device: str = "meta", layers: int | None = None
) -> dict[str, float]:
    """All that gateon adds to a model, in bytes."""
    lora = view.startswith("LoRA")
    plain = llama(size, device, lora, layers)
    parameters = sum(p.numel() for p in plain.parameters())
    trained = sum(p.numel() for p in plain.parameters() if p.requires_grad)
    moved, kept = a_token(plain, device)
    del plain
    model = llama(size, device, lora, layers)
    example = {"input_ids": batch(TOKENS[0], device)}
    gates = gateon.attach(model, contexts=1, start="open", example=example)
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.0)
    handle = gateon.obstruct(optimizer, gates, per=VIEWS[view], rate=0.01)
    gated_moved, gated_kept = a_token(model, device)
    for ledger in handle.ledgers():  # as after a first task, so that every update is scaled
        plastic = ledger.plastic
        ledger.plastic = dict.fromkeys(plastic, False) if isinstance(plastic, dict) else False
    taps = [u.observer.tap for u in handle._books.units if u.observer]
    with Counted() as around, answered():
        handle._before_step(optimizer, (optimizer,), {})
        handle._after_step(optimizer, (optimizer,), {})
    entries = [pair for one in handle.ledgers() for pair in one.entries()]
    rows = [gate.weight[0] for gate in gates.gates.values() if gate.weight is not None]
    return {
        "parameters": parameters,
        "trained": trained,
        "availabilities": sum(running.numel() for _, running, _ in entries),
        "bytes of availabilities": sum(bytes_of(r) + bytes_of(a) for _, r, a in entries),
        "bytes of the copy before a step": sum(bytes_of(t) for t in handle._before.values()),
        "units with gates": sum(row.numel() for row in rows),
        "bytes of gates a context": sum(bytes_of(row) for row in rows),
        "bytes of relevance all-reduced in a step": sum(bytes_of(tap) for tap in taps),
        "units observed": sum(tap.numel() for tap in taps),
        "bytes moved around a step": around.moved,
        "bytes moved by gates a token": gated_moved - moved,
        "bytes moved by the plain passes a token": moved,
        "bytes kept by gates a token": gated_kept - kept,
        "bytes kept by the plain passes a token": kept,
    }


def measured(view: str) -> dict[str, float]:
    """Memory that `attach`, `obstruct` and a step really take, in the small model on the CPU."""
    lora = view.startswith("LoRA")
    model = llama("small", "cpu", lora)
    tokens = batch(TOKENS[0], "cpu")
    gates = gateon.attach(model, contexts=1, start="open", example={"input_ids": tokens})
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.0)
    before = live_bytes()
    handle = gateon.obstruct(optimizer, gates, per=VIEWS[view], rate=0.01, apply="step")
    assert handle.ledgers()
    book = live_bytes() - before
    for _ in range(2):
        model(input_ids=tokens).logits.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"with availabilities and taps": book, "after two steps": live_bytes() - before}


def expected(view: str) -> dict[str, float]:
    """The same by counting."""
    found = counted("small", view, "cpu")
    taps = 4 * found["units observed"]
    book = found["bytes of availabilities"] + taps
    return {
        "with availabilities and taps": book,
        "after two steps": book + found["bytes of the copy before a step"],
    }


def live_bytes() -> int:
    """Bytes of all tensors that are alive."""
    gc.collect()
    found = {}
    for thing in gc.get_objects():
        if isinstance(thing, torch.Tensor) and not thing.is_meta:
            storage = thing.untyped_storage()
            found[storage._cdata] = storage.nbytes()
    return sum(found.values())


def contexts_on_disk(units: int) -> dict[str, float]:
    """Ten thousand rows of gates in a file, of which a switch reads one and writes one back."""
    row = np.zeros(units, dtype=np.float32)
    drawn, seconds = np.random.default_rng(0), []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        rows = np.memmap(path, np.float32, "w+", shape=(CONTEXTS, units))  # a file with holes
        active = torch.from_numpy(row.copy())
        for k in drawn.integers(CONTEXTS, size=50):
            start = time.perf_counter()
            rows[(k + 1) % CONTEXTS] = active.numpy()
            active.copy_(torch.from_numpy(np.array(rows[k])))
            seconds.append(time.perf_counter() - start)
        bytes_ = float(rows.nbytes)
    return {"bytes on disk": bytes_, "milliseconds of a switch": 1e3 * float(np.median(seconds))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=list(SIZES))
    parser.add_argument("--dry", action="store_true", help="write no record")
    options = parser.parse_args()
    ledgers.BLOCK = 1 << 22  # fewer and larger pieces than fit in a cache: the same bytes
    result: dict[str, dict[str, object]] = {}
    for size in options.sizes:
        for view in VIEWS:
            start = time.monotonic()
            row = counted(size, view) if size in WHOLE else by_layers(size, view)
            result.setdefault(size, {})[view] = row
            print(f"{size} {view} ({time.monotonic() - start:.0f} s)")
            for name, value in row.items():
                print(f"    {name:45} {value:,.0f}")
    check = {view: {"counted": expected(view), "measured": measured(view)} for view in VIEWS}
    for view, row in check.items():
        print(f"small on the CPU, {view}: {row}")
    disk = {}
    for size in options.sizes:
        disk[size] = contexts_on_disk(int(result[size]["n"]["units with gates"]))
        print(size, CONTEXTS, disk[size])
    if not options.dry:
        settings = {"sizes": SIZES, "rank": RANK, "tokens": TOKENS, "contexts": CONTEXTS}
        found = {"counted": result, "small on the CPU": check, "contexts on disk": disk}
        measure.write("cost/scale", settings, found, "python benchmarks/scale.py")


if __name__ == "__main__":
    main()
