"""LoRA whose ranks are units: one adapter for all tasks, of which each context opens some ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import nn

from ...anatomy.adapters import has_adapters
from ...anatomy.ranks import has_ranks, rank_sites
from ...gating.attach import attach as attach_anywhere
from ...gating.gates import Gates, gates_of

__all__ = ["Adapted", "attach_to_ranks", "check_ranks", "lora"]

STEEPNESS = 10.0  # of the gates of ranks, beside the learning rates that adapters take
# What transformers calls a model, and what PEFT calls its task.
TASKS = {
    "ForCausalLM": "CAUSAL_LM",
    "LMHeadModel": "CAUSAL_LM",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
}


class Adapted(NamedTuple):
    """What `lora` returns: PEFT's model, and the gates of its ranks."""

    model: Any
    gates: Gates


def attach_to_ranks(
    model: nn.Module,
    contexts: int = 1,
    *,
    ranks_per_task: int | None = None,
    reuse: bool = False,
    steepness: float | None = None,
    seed: int = 0,
) -> Gates:
    """Gate the ranks of a model's LoRA layers, in place.

    W x + s B (A x) becomes W x + s sum_i g_i b_i (a_i x), where a_i is a row of A, b_i a column of
    B, and g_i the gain of rank i in the active context: 1 at first where it is open, and 0 for good
    where it is closed. Closed ranks are not computed.

    Args:
        model: what PEFT has given LoRA layers.
        contexts: the number of contexts to start with; `Gates.add_context` adds more at any time.
        ranks_per_task: how many ranks of every layer a context opens; by default an equal share for
            each of `contexts`, or an eighth of them if there is one.
        reuse: draw the ranks of each context from all, so that tasks share some; otherwise contexts
            take turns, and ranks are shared once each has had its turn.
        steepness: how much faster gates learn than A and B; by default 10 times.
        seed: of which ranks a context opens.
    """
    sites = rank_sites(model)
    ranks = {site.name: site.units for site in sites if site.gated}
    least = min(ranks, key=lambda name: ranks[name])
    if ranks_per_task is not None and not 1 <= ranks_per_task <= ranks[least]:
        raise ValueError(
            f"ranks_per_task must be between 1 and the rank of every adapter, which is "
            f"{ranks[least]} at {least!r}, got {ranks_per_task}."
        )
    parts = contexts if isinstance(contexts, int) and contexts > 1 else 8
    shares = {
        name: (ranks_per_task or max(1, units // parts)) / units for name, units in ranks.items()
    }
    alike = len(set(shares.values())) == 1
    return attach_anywhere(
        model,
        contexts,
        density=next(iter(shares.values())) if alike else shares,
        start="part",
        sites=sites,
        steepness=STEEPNESS if steepness is None else steepness,
        in_turn=not reuse,
        seed=seed,
    )


def lora(
    model: Any,
    rank: int = 64,
    ranks_per_task: int = 8,
    contexts: int = 1,
    *,
    target_modules: str | Sequence[str] | None = None,
    scaling: float = 2.0,
    dropout: float = 0.0,
    reuse: bool = False,
    seed: int = 0,
) -> Adapted:
    """Give a model of transformers one LoRA adapter for all tasks, and gates on its ranks.

    The weights of the model itself never change. Of the adapter's ranks each context opens
    `ranks_per_task`; `gateon.hf.obstruct` protects those that became relevant.

    Args:
        model: any model of transformers, also one loaded in 8 or 4 bit.
        rank: ranks of every adapted layer, for all tasks together.
        ranks_per_task: how many of them a context opens.
        contexts: the number of contexts to start with; `Gates.add_context` adds more at any time.
        target_modules: the layers to adapt, as in `peft.LoraConfig`; by default those that PEFT
            adapts in this architecture, or every Linear if it does not know the architecture.
        scaling: s in W x + s B (A x), whatever the rank.
        dropout: of the input of A.
        reuse: whether contexts draw from all ranks instead of taking turns.
        seed: of which ranks a context opens.

    Returns:
        The model, whose class is PEFT's, and the gates.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(
    ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=16,
    ... )
    >>> model, gates = lora(LlamaForCausalLM(config), rank=8, ranks_per_task=2, contexts=3)
    >>> [int((gain > 0).sum()) for gain in gates.gain(1).values()]
    [2, 2]
    """
    try:
        import peft
    except ImportError as error:
        raise ImportError("gateon.hf.lora needs PEFT: pip install peft.") from error
    _check_can_adapt(model, rank, ranks_per_task, contexts, scaling)
    if target_modules is None:
        known = peft.utils.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
        target_modules = known.get(model.config.model_type, "all-linear")
    name = type(model).__name__
    settings = peft.LoraConfig(
        task_type=next((task for ending, task in TASKS.items() if name.endswith(ending)), None),
        r=rank,
        lora_alpha=scaling * rank,  # type: ignore[arg-type,unused-ignore]
        lora_dropout=dropout,
        target_modules=target_modules if isinstance(target_modules, str) else list(target_modules),
        fan_in_fan_out=any(type(module).__name__ == "Conv1D" for module in model.modules()),
    )
    adapted = peft.get_peft_model(model, settings)
    gates = attach_to_ranks(
        adapted, contexts, ranks_per_task=ranks_per_task, reuse=reuse, seed=seed
    )
    return Adapted(adapted, gates)


def _check_can_adapt(
    model: Any, rank: int, ranks_per_task: int, contexts: int, scaling: float
) -> None:
    """Refuse whatever cannot be made, before the model is changed."""
    if gates_of(model) is not None:
        raise ValueError(
            "This model has gates already, and adapters come before gates: "
            "gateon.gates_of(model).detach(), then call gateon.hf.lora."
        )
    if has_adapters(model):
        raise ValueError(
            "This model has adapters already: gateon.hf.attach(model) gates the ranks they have."
        )
    if not hasattr(model, "config"):
        raise ValueError(
            f"{type(model).__name__} is not a model of transformers: "
            "give it adapters with peft.get_peft_model, then call gateon.hf.attach."
        )
    if not 1 <= ranks_per_task <= rank:
        raise ValueError(f"ranks_per_task must be between 1 and rank={rank}, got {ranks_per_task}.")
    if not isinstance(contexts, int) or contexts < 1:
        raise ValueError(f"contexts must be a whole number of at least 1, got {contexts!r}.")
    if not scaling > 0:
        raise ValueError(f"scaling must be above 0, got {scaling}.")


def check_ranks(model: nn.Module, asked: int | None) -> bool:
    """Whether to gate ranks: there are some. ValueError if they were asked for and are not there."""
    if has_ranks(model):
        return True
    if asked is not None:
        raise ValueError(
            "ranks_per_task gates the ranks of plain LoRA layers, and this model has none (DoRA "
            "and other variants mix ranks): call gateon.hf.lora, or leave ranks_per_task out."
        )
    return False
