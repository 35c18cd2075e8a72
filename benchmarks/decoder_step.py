"""A training step of a decoder like Llama whose feed-forward units are half open, beside the plain one of full width.

    python benchmarks/decoder_step.py [--rounds 15]
    python benchmarks/decoder_step.py --layers 1 --hidden 64 --batch 1 --rounds 2 --dry     to try it; nothing is written

Blocks have the shape of SmolLM2-135M: three query heads share a key and a value, and a feed-forward
part is 2 2/3 times as wide as the rest. The loss is that of the next token, every weight is trained
with Adam, and the second of two contexts is learned, so that updates are really scaled.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import gateon
import measure

# Which sites are gated, and the view of availability; the learned network is a sub-network or not.
FEED_FORWARD = "*gate_proj"
VARIANTS: dict[str, tuple[str | None, str, bool]] = {
    "compact, feed-forward gated, per unit": (FEED_FORWARD, "unit", True),
    "compact, feed-forward gated, per parameter": (FEED_FORWARD, "parameter", True),
    "compact, every layer gated, per unit": (None, "unit", True),
    "full width, feed-forward gated, per unit": (FEED_FORWARD, "unit", False),
}


def decoder(options: argparse.Namespace) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=options.hidden * 8 // 3,
        num_hidden_layers=options.layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=max(2, options.hidden // 9 // 2 * 2),
        tie_word_embeddings=True,
        use_cache=False,
    )
    return LlamaForCausalLM(config).train()


def stepping(
    model: nn.Module, optimizer: torch.optim.Optimizer, ids: torch.Tensor
) -> Callable[[], None]:
    def run() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def gated(
    model: nn.Module, sites: str | None, per: str, ids: torch.Tensor, *, compactly: bool
) -> Callable[[], None]:
    """A step in the second context, with availabilities that the first has lowered."""
    density = {"*gate_proj": 0.5} if sites is not None else {"*gate_proj": 0.5, "*": 1.0}
    gates = gateon.attach(model, contexts=2, sites=sites, density=density, start=0.95)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    handle = gateon.obstruct(optimizer, gates, per=per)  # type: ignore[arg-type]
    stepping(model, optimizer, ids)()
    gates.switch(1)
    assert all((A < 1).any() for A in handle.availability.values())
    if not compactly:
        return stepping(model, torch.optim.Adam(model.parameters(), lr=1e-4), ids)
    small = gateon.compact(model, context=1)
    smaller = torch.optim.Adam(small.parameters(), lr=1e-4)
    small.obstruction.follow(smaller)
    return stepping(small, smaller, ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=576)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--dry", action="store_true", help="write no record")
    options = parser.parse_args()
    ids = torch.randint(3, options.vocabulary, (options.batch, options.length))
    model = decoder(options)
    variants = {"plain": stepping(model, torch.optim.Adam(model.parameters(), lr=1e-4), ids)}
    for name, (sites, per, compactly) in VARIANTS.items():
        variants[name] = gated(decoder(options), sites, per, ids, compactly=compactly)
    table = measure.ratios(measure.interleaved(variants, options.rounds), "plain")
    measure.show(table)
    if not options.dry:
        settings = vars(options) | {"density": 0.5, "optimizer": "Adam"}
        measure.write("cost/decoder-step", settings, table, "python benchmarks/decoder_step.py")


if __name__ == "__main__":
    main()
