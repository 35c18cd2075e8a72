"""The decoder of the LoRA benchmarks: one that is fetched by name, or a tiny random one to try them."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from gateon.networks import pretrained

TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def decoder(name: str) -> Any:
    """A causal language model in float32 by its name; the weights of "tiny" are drawn."""
    if name == "tiny":
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY, vocab_size=300))
    place = pretrained.find(name)
    return pretrained.with_weights(
        transformers.AutoModelForCausalLM, place, {"dtype": torch.float32}
    )


class Bytes:
    """The tokenizer of the tiny model: one token for each byte."""

    bos_token_id, eos_token_id, pad_token_id = 0, 1, 2

    def encode(self, text: str) -> list[int]:
        return [3 + byte for byte in text.encode()]

    def decode(self, ids: list[int]) -> str:
        return bytes(i - 3 for i in ids if 3 <= i < 259).decode(errors="replace")


class Words:
    """A tokenizer of transformers, as far as the benchmarks use it."""

    def __init__(self, name: str) -> None:
        self.made = pretrained.tokenizer(name)
        self.bos_token_id, self.eos_token_id = self.made.bos_token_id, self.made.eos_token_id
        self.pad_token_id = self.made.pad_token_id

    def encode(self, text: str) -> list[int]:
        return list(self.made.encode(text, add_special_tokens=False))

    def decode(self, ids: list[int]) -> str:
        return str(self.made.decode(ids, skip_special_tokens=True))


def tokenizer(name: str) -> Bytes | Words:
    """The tokenizer of `decoder(name)`."""
    return Bytes() if name == "tiny" else Words(name)
