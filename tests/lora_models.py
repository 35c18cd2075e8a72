"""Tiny models with LoRA whose ranks are gated, made on the spot: nothing is downloaded."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import transformers
from torch import nn

import gateon.integrations.hf


def llama(**sizes):
    torch.manual_seed(0)
    small = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 40,
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**small | sizes))


def gpt2():
    torch.manual_seed(0)
    small = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40, "n_positions": 64}
    none = {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**small, **none, **ids))


def bert():
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertForMaskedLM(
        transformers.BertConfig(**small, **none, intermediate_size=24, vocab_size=40)
    )


MODELS = {"llama": llama, "gpt2": gpt2, "bert": bert}


class In8Bit(nn.Linear):
    """A layer whose weight is held in 8 bit, as libraries that quantise do it."""

    def __init__(self, linear):
        super().__init__(linear.in_features, linear.out_features)
        whole = (linear.weight.detach() * 100).round().to(torch.int8)
        self.weight = nn.Parameter(whole, requires_grad=False)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype) / 100, self.bias)


def in_8_bit():
    model = llama().requires_grad_(False)
    model.model.embed_tokens.weight.data = model.model.embed_tokens.weight.data.bfloat16()
    for block in model.model.layers:
        block.mlp.down_proj = In8Bit(block.mlp.down_proj)
    return model.float()


def tokens(k=0, samples=4, length=6):
    return torch.randint(3, 40, (samples, length), generator=torch.Generator().manual_seed(k))


def ranked(make=llama, contexts=3, rank=6, per_task=2, dtype=torch.float64, **options):
    """A model with random A and B, as if something had been learned before, and its gates."""
    model, gates = gateon.hf.lora(make(), rank, per_task, contexts, **options)
    model = model.to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name and "gate" not in name:
                p.copy_(torch.randn(p.shape, generator=generator).to(dtype) * 0.2)
    return model, gates


def learn(model, optimizer, ids):
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def adapters(model):
    return {n: p.detach().clone() for n, p in model.named_parameters() if ".lora_" in n}


def open_ranks(gates, context):
    return {name: set(g.nonzero().flatten().tolist()) for name, g in gates.gain(context).items()}
