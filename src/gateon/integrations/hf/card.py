"""The model card, README.md: what a model with contexts is, how to load it, and its licence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from torch import nn

from ...availability.obstruct import Obstruction
from ...gating.gates import Gates
from ...networks.pretrained import base_of
from ...networks.text import TextClassifier

__all__ = ["card_text", "write_card"]

BEGIN, END = "<!-- gateon: begin -->", "<!-- gateon: end -->"
TAGS = ("continual-learning", "gateon")
BASE = "BASE_MODEL"  # in the text, where the name of the base model goes


def card_text(gates: Gates, handle: Obstruction | None) -> str:
    """A section in Markdown: what the model holds, how to load it, and how much room is left.

    Args:
        gates: Of the model.
        handle: Its availabilities; None if it has none.
    """
    parts = _of_adapter(gates) if _is_adapter(gates) else _of_model(gates)
    if handle is not None:
        kept = handle.saturation(threshold=0.05).values()
        share = sum(one.room for one in kept) / len(kept)
        parts[1] += f" Room left for further tasks: {share:.0%}, the mean availability."
    return "\n\n".join(parts)


def write_card(directory: Path, model: nn.Module, text: str) -> None:
    """Put that section in front of what a card says already, in the place of an older one.

    Args:
        directory: Where the model is saved.
        model: The model; its base and the licence of that are named where they are known.
        text: What `card_text` returned.
    """
    from huggingface_hub import ModelCard, ModelCardData

    path, inside = directory / "README.md", _described(model)
    if path.is_file():
        card = ModelCard.load(path)
    else:
        data = ModelCardData(library_name="transformers")
        card = ModelCard(f"---\n{data.to_yaml()}\n---\n")
    base, licence = base_of(getattr(inside.config, "_name_or_path", ""))
    card.data.base_model = card.data.base_model or base or None
    card.data.license = card.data.license or licence or None
    card.data.tags = sorted({*(card.data.tags or []), *TAGS})
    rest = re.sub(f"{BEGIN}.*?{END}\n*", "", card.text, flags=re.DOTALL).strip()
    name = card.data.base_model or "the base model"
    known = card.data.license and f"{card.data.license}, that of {name}"
    text = f"{text.replace(BASE, str(name))}\n\nLicence: {known or f'that of {name}; see there'}."
    card.text = f"{BEGIN}\n{text}\n{END}\n\n{rest}".rstrip() + "\n"
    card.save(path)


def _of_adapter(gates: Gates) -> list[str]:
    """What is said of LoRA whose ranks belong to contexts."""
    ranks = sorted({gate.site.units for gate in gates.gates.values()})
    opened = sorted({int((gain > 0).sum()) for gain in gates.gain(0).values()})
    return [
        f"# One LoRA adapter with {gates.contexts} contexts",
        "Tasks were learned one after another with gateon, without replay of earlier data. Of the "
        f"{_listed(ranks)} ranks of each of its {len(gates.gates)} layers a context opens "
        f"{_listed(opened)}; the weights of the base model are unchanged.",
        f"""```python
import gateon.hf
import transformers

base = transformers.AutoModel{_head(gates)}.from_pretrained({BASE!r})
model, gates, handle = gateon.hf.from_pretrained("directory of this adapter", base)
gates.show(0)                                # the first task, for all samples
gates.show([0, 1])                           # a batch of two, each in its own context
plain = gateon.hf.merge(model, context=0)    # without adapters or gates, to deploy
```""",
        "PEFT alone loads the adapter with all ranks open, which is none of its contexts.",
    ]


def _of_model(gates: Gates) -> list[str]:
    """What is said of a whole model."""
    units = sum(gate.site.units for gate in gates.gates.values())
    rows = [
        f"| {k} | {sum(int((gain > 0).sum()) for gain in gates.gain(k).values()) / units:.0%} | "
        f"{sum(float((gain - 1).abs().sum()) for gain in gates.gain(k).values()) / units:.3f} |"
        for k in range(gates.contexts)
    ]
    return [
        f"# {type(_described(gates.model)).__name__} with {gates.contexts} contexts",
        f"Tasks were learned one after another with gateon, from {BASE} on, without replay of "
        f"earlier data. Gates at {len(gates.gates)} places, of {units:,} units, give every context "
        "gains of its own.",
        "\n".join(
            ["| context | open units | mean distance of gains from 1 |", "|---|---|---|", *rows]
        ),
        """```python
import gateon.hf

model, gates, handle = gateon.hf.from_pretrained("directory of this model")
gates.show(0)                                # the first task
```""",
        "transformers alone loads the weights without gates, which is none of the contexts.",
    ]


def _is_adapter(gates: Gates) -> bool:
    return any(site.columns for site in gates.sites.values())


def _described(model: nn.Module) -> Any:
    """The model of transformers or PEFT inside."""
    return model.encoder if isinstance(model, TextClassifier) else model


def _head(gates: Gates) -> str:
    """How the AutoModel of the base ends: ForCausalLM and the like."""
    base = getattr(gates.model, "get_base_model", lambda: gates.model)()
    known = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
    name = type(base).__name__
    causal = "ForCausalLM" if name.endswith(("ForCausalLM", "LMHeadModel")) else ""
    return next((ending for ending in known if name.endswith(ending)), causal)


def _listed(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
