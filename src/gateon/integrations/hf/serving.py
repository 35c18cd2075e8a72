"""Using a model with gated ranks: one context for each sample, or one context for good."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...anatomy.adapters import is_quantised
from ...anatomy.contextual import as_context
from ...anatomy.kinds import spread_columns
from ...gating.contexts import showing
from ...gating.gates import Gates, gates_of

__all__ = ["in_contexts", "merge"]


@contextmanager
def in_contexts(
    model: nn.Module, contexts: int | Sequence[int] | Tensor, copies: int = 1
) -> Iterator[None]:
    """Show every sample of a batch in a context of its own for a while.

    For example::

        with gateon.hf.in_contexts(model, [0, 2, 1]):
            model.generate(**three_prompts)

    Args:
        model: a model with gates.
        contexts: one for all samples, or one for each.
        copies: how many sequences `generate` works on for each sample: num_beams or
            num_return_sequences, whichever is larger.
    """
    gates = _gates(model)
    if not isinstance(copies, int) or copies < 1:
        raise ValueError(f"copies must be a whole number of at least 1, got {copies!r}.")
    rows = torch.as_tensor(contexts)
    with showing(gates.model, rows.repeat_interleave(copies) if rows.dim() == 1 else int(rows)):
        yield


@torch.no_grad()
def merge(model: nn.Module, context: int) -> Any:
    """The model of one context, without adapters or gates: W + s B diag(g) A in the place of W.

    It computes what the gated model does in that context, and is saved and served like any model
    of transformers. The gated model stays as it is.

    Args:
        model: PEFT's model, whose ranks are gated.
        context: which one.

    >>> import gateon.hf
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(
    ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=16,
    ... )
    >>> model, gates = gateon.hf.lora(LlamaForCausalLM(config), rank=8, ranks_per_task=2)
    >>> type(merge(model, context=0)).__name__
    'LlamaForCausalLM'
    """
    gates, context = _gates(model), as_context(context)
    if context >= gates.contexts:
        raise IndexError(
            f"Context {context} does not exist: there are {gates.contexts}; add_context() adds one."
        )
    others = [name for name, gate in gates.gates.items() if not gate.site.columns]
    if others or not hasattr(gates.model, "merge_and_unload"):
        raise ValueError(
            "Only gates on the ranks of PEFT's LoRA can be merged: make the model with "
            "gateon.hf.lora, or deploy it with its gates."
        )
    if is_quantised(gates.model):
        raise ValueError(
            "Weights in 8 or 4 bit cannot hold what is merged into them: load the base without "
            "quantization, gateon.hf.from_pretrained(directory, base), and merge that."
        )
    plain: Any = copy.deepcopy(gates.model)
    inner = _gates(plain)
    for name, gain in inner.gain(context).items():
        for columns in (plain.get_submodule(name) for name in inner.sites[name].columns):
            shaped = spread_columns(columns, "weight", gain)
            assert shaped is not None
            columns.weight.mul_(shaped)
    inner.detach()
    merged = plain.merge_and_unload().eval()
    for parameter in merged.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    return merged


def _gates(model: nn.Module) -> Gates:
    gates = gates_of(model)
    if gates is None:
        raise ValueError("This model has no gates: gateon.hf.attach(model) gates its ranks.")
    return gates
