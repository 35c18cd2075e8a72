"""Sites of LoRA: in W x + s B (A x) every rank is a unit, with a row of A and a column of B.

The layers of PEFT are recognised by name, as PEFT need not be installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from .adapters import is_adapted, is_peft
from .kinds import is_layer, unit_dim, units_of
from .placement import Site

__all__ = ["has_ranks", "rank_sites"]

HEADS = {"classifier", "score", "qa_outputs", "lm_head"}  # as transformers names output layers


def has_ranks(model: nn.Module) -> bool:
    """Whether a model has LoRA layers whose ranks can be gated.

    >>> has_ranks(nn.Linear(2, 3))
    False
    """
    return next(_pairs(model), None) is not None


def rank_sites(model: nn.Module) -> list[Site]:
    """One site for the ranks of every LoRA layer of PEFT, and sites for whatever else is trained.

    Ranks of DoRA and other variants are mixed by what they compute of the weights, and an embedding
    has no module between A and B: there, and for biases that PEFT trains, every parameter has an
    availability of its own.

    Args:
        model: the result of `peft.get_peft_model`, or a model into which adapters were injected.
    """
    sites = [
        Site(
            rows,
            rows,
            (rows,),
            units_of(model.get_submodule(rows)) or 0,
            unit_dim(model.get_submodule(rows)),
            columns=(columns,),
            note="ranks",
        )
        for rows, columns in _pairs(model)
    ]
    owned = {name for site in sites for name in (*site.owns, *site.columns)}
    named = model.named_parameters()
    trained = [name for name, p in named if p.requires_grad and "context_gate" not in name]
    rest = dict.fromkeys(name.rpartition(".")[0] for name in trained)
    for name in (name for name in rest if name not in owned):
        is_head = bool(HEADS & set(name.split(".")))
        sites.append(Site(name, "", (name,), 0, gated=False, head=is_head, note="not a rank"))
    return sites


def _pairs(model: nn.Module) -> Iterator[tuple[str, str]]:
    """The names of A and B of every LoRA layer that computes B (A x), of its active adapters."""
    for name, module in model.named_modules():
        if not is_adapted(module) or not is_peft(module, "LoraLayer"):
            continue
        layer: Any = module
        for adapter in layer.active_adapters:
            plain = adapter in layer.lora_A and adapter not in layer.lora_variant
            if plain and is_layer(layer.lora_A[adapter]):
                yield f"{name}.lora_A.{adapter}", f"{name}.lora_B.{adapter}"
