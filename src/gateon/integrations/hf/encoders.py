"""Gates and obstruction with the paper's settings for language models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ...anatomy.adapters import check_trainable
from ...anatomy.encoders import encoder_sites
from ...availability.obstruct import Obstruction, View
from ...availability.obstruct import obstruct as obstruct_anywhere
from ...availability.rule import Rate
from ...gating.attach import attach as attach_anywhere
from ...gating.gates import Gates
from ...methods.gateon import first_rate, preset
from .ranks import attach_to_ranks, check_ranks

__all__ = ["LANGUAGE", "attach", "obstruct"]

LANGUAGE = preset("language")


def attach(
    model: nn.Module,
    contexts: int = 1,
    *,
    example: Any = None,
    steepness: float | None = None,
    ranks: bool = True,
    ranks_per_task: int | None = None,
    reuse: bool = False,
    seed: int = 0,
) -> Gates:
    """Attach gates to the ranks of a model's LoRA, or open gates to an encoder like BERT, in place.

    Until it is trained, the model computes what it did before, bit for bit. In a model with
    adapters from PEFT, only what PEFT trains is trained. Where these are LoRA, in any architecture,
    every rank is a unit, and a context opens some: see `gateon.hf.lora`.

    In an encoder, gates go behind embeddings, attention, the activation between the two Linears of
    a block, its output, and the pooler. The weights of embeddings and attention are fixed; their
    gates learn. For any other network use `gateon.attach(model, start="open")`.

    Args:
        model: BERT, DistilBERT, RoBERTa, ELECTRA, MiniLM ..., with or without output layers; a
            `text_classifier`; or the result of `get_peft_model` for one of these, or of any model
            with LoRA.
        contexts: The number of contexts to start with; `Gates.add_context` adds more at any time.
        example: One batch of input, for encoders that do not come with one.
        steepness: How much faster gates learn than weights; by default 100 in an encoder, and 10 at
            ranks, whose weights have larger learning rates.
        ranks: False gates an encoder with LoRA where it is gated without.
        ranks_per_task: How many ranks of every layer a context opens; by default an equal share for
            each of `contexts`, or an eighth of them if there is one.
        reuse: Draw the ranks of each context from all, so that tasks share some; otherwise contexts
            take turns, and ranks are shared once each has had its turn.
        seed: Of which ranks a context opens.

    Returns:
        The gates, for `obstruct` and to switch contexts.

    >>> from transformers import BertConfig, BertForSequenceClassification
    >>> config = BertConfig(
    ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=16,
    ... )
    >>> gates = attach(BertForSequenceClassification(config), contexts=3)
    >>> len(gates.gates), gates.contexts, {float(gain.mean()) for gain in gates.gain(2).values()}
    (5, 3, {1.0})
    """
    check_trainable(model)
    if ranks and check_ranks(model, ranks_per_task):
        return attach_to_ranks(
            model,
            contexts,
            ranks_per_task=ranks_per_task,
            reuse=reuse,
            steepness=steepness,
            seed=seed,
        )
    return attach_anywhere(
        model,
        contexts,
        density=1.0,
        start=LANGUAGE.start,
        sites=encoder_sites(model, example),
        steepness=LANGUAGE.steepness if steepness is None else steepness,
    )


def obstruct(
    optimizer: Optimizer,
    gates: Gates,
    *,
    per: View = "unit",
    rate: Rate | Mapping[str, Rate] = LANGUAGE.rate,
    epsilon: float = LANGUAGE.epsilon,
    head: bool = LANGUAGE.obstruct_head,
    first_task_steps: int | None = None,
) -> Obstruction:
    """`gateon.obstruct` with the settings for language models.

    Args:
        optimizer: Any torch optimizer built after `attach`.
        gates: What `attach` returned.
        per: "unit" (n-GateON) or "parameter" (p-GateON).
        rate: eta_A.
        epsilon: Relevance below it unfreezes.
        head: Whether to obstruct the output layers too.
        first_task_steps: The number of steps of the first task; below 50 its rate is doubled, as in
            the paper.

    Returns:
        A handle with the availabilities.
    """
    rates = rate.values() if isinstance(rate, Mapping) else [rate]
    numbers = [max(r) if isinstance(r, tuple) else r for r in rates if not isinstance(r, str)]
    short = first_task_steps is not None and numbers
    first = first_rate(first_task_steps or 0, max(numbers)) if short else None
    return obstruct_anywhere(
        optimizer, gates, per=per, rate=rate, epsilon=epsilon, head=head, first_rate=first
    )
