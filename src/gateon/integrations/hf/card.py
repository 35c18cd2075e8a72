"""What a model card says of an adapter whose ranks belong to contexts."""

from __future__ import annotations

import re
from pathlib import Path

from ...availability.obstruct import Obstruction
from ...availability.rule import room
from ...gating.gates import Gates

__all__ = ["card_text", "write_card"]

BEGIN, END = "<!-- gateon: begin -->", "<!-- gateon: end -->"
TAGS = ("continual-learning", "gateon")


def card_text(gates: Gates, handle: Obstruction | None, base: str) -> str:
    """A section in Markdown: what the adapter holds, how to load it, and how much room is left.

    Args:
        gates: Of the adapter's ranks.
        handle: Its availabilities; None if it has none.
        base: The name of the model that was adapted.
    """
    ranks = sorted({gate.site.units for gate in gates.gates.values()})
    opened = sorted({int((gain > 0).sum()) for gain in gates.gain(0).values()})
    lines = [
        f"# One LoRA adapter with {gates.contexts} contexts",
        "",
        f"Tasks were learned one after another with gateon, without replay of earlier data. Of the "
        f"{_listed(ranks)} ranks of each of its {len(gates.gates)} layers a context opens "
        f"{_listed(opened)}; the weights of the base model are unchanged.",
    ]
    if handle is not None:
        kept = [A for _, A, _ in (entry for one in handle.ledgers() for entry in one.entries())]
        share = sum(room(A) * A.numel() for A in kept) / sum(A.numel() for A in kept)
        lines.append(f"Room left for further tasks: {share:.0%}, the mean availability.")
    return "\n".join(
        [
            *lines,
            "",
            "```python",
            "import gateon.hf",
            "import transformers",
            "",
            f"base = transformers.AutoModel{_head(gates)}.from_pretrained({base!r})",
            'model, gates, handle = gateon.hf.from_pretrained("directory of this adapter", base)',
            "gates.show(0)                                # the first task, for all samples",
            "gates.show([0, 1])                           # a batch of two, each in its own context",
            "plain = gateon.hf.merge(model, context=0)    # without adapters or gates, to deploy",
            "```",
            "",
            "PEFT alone loads the adapter with all ranks open, which is none of its contexts.",
        ]
    )


def write_card(directory: Path, gates: Gates, handle: Obstruction | None) -> None:
    """Put that section in front of the card that PEFT has written, in the place of an older one."""
    from huggingface_hub import ModelCard

    path = directory / "README.md"
    card = ModelCard.load(path)
    rest = re.sub(f"{BEGIN}.*?{END}\n*", "", card.text, flags=re.DOTALL).lstrip()
    name = card.data.get("base_model") or "the base model"
    card.text = f"{BEGIN}\n{card_text(gates, handle, name)}\n{END}\n\n{rest}"
    card.data.tags = sorted({*(card.data.tags or []), *TAGS})
    card.save(path)


def _head(gates: Gates) -> str:
    """How the AutoModel of the base ends: ForCausalLM and the like."""
    base = getattr(gates.model, "get_base_model", lambda: gates.model)()
    known = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
    name = type(base).__name__
    causal = "ForCausalLM" if name.endswith(("ForCausalLM", "LMHeadModel")) else ""
    return next((ending for ending in known if name.endswith(ending)), causal)


def _listed(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
