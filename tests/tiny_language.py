"""Tiny random language models with a tokenizer, made on the spot: nothing is downloaded."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Literal

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

Kind = Literal["bert", "distilbert", "roberta", "electra"]
POSITIONS = 128
WORDS = """
the a an and or but not no very too it this that was is are has have had i we you my on in of to for with as at all so
good great best nice love loved like fine bad poor worst awful hate hated broken slow fast cheap strong weak loud quiet
phone camera router player book film game kitchen knife screen battery sound picture price size weight button case lens
box works stopped arrived returned bought recommend buy never again after month week year day one two three time money
car engine wheel space orbit moon faith church god team season hockey goal disk driver windows graphics sale offer
"""


def tiny_tokenizer(kind: Kind = "bert") -> PreTrainedTokenizerFast:
    """Lower-cased word pieces: whole words of a short list, anything else letter by letter."""
    if kind == "roberta":
        special = {
            "cls_token": "<s>",
            "pad_token": "<pad>",
            "sep_token": "</s>",
            "unk_token": "<unk>",
            "mask_token": "<mask>",
        }
        between = " </s> </s>"
    else:
        special = {
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "mask_token": "[MASK]",
        }
        between = " [SEP]"
    symbols = string.ascii_lowercase + string.digits
    pieces = [
        *special.values(),
        *string.punctuation,
        *symbols,
        *(f"##{symbol}" for symbol in symbols),
        *WORDS.split(),
    ]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token=special["unk_token"]))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    begin, end = special["cls_token"], special["sep_token"]
    second = 0 if kind == "roberta" else 1
    made.post_processor = TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A{between} $B:{second} {end}:{second}",
        special_tokens=[(token, vocabulary[token]) for token in (begin, end)],
    )
    more = {"bos_token": begin, "eos_token": end} if kind == "roberta" else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=POSITIONS, **special, **more
    )


def tiny_model(directory: Path | str, kind: Kind = "bert", seed: int = 0) -> Path:
    """A random encoder (32 units, 2 layers, 2 heads) and its tokenizer, written as transformers does; the directory."""
    directory, tokenizer = Path(directory), tiny_tokenizer(kind)
    size, pad = len(tokenizer), tokenizer.pad_token_id
    usual = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "vocab_size": size,
        "pad_token_id": pad,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: torch.nn.Module
        if kind == "bert":
            model = BertModel(BertConfig(**usual, max_position_embeddings=POSITIONS))
        elif kind == "electra":
            model = ElectraModel(
                ElectraConfig(**usual, embedding_size=32, max_position_embeddings=POSITIONS)
            )
        elif kind == "roberta":  # whose positions are counted from behind the padding's id
            ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
            model = RobertaModel(
                RobertaConfig(
                    **usual, **ids, type_vocab_size=1, max_position_embeddings=POSITIONS + pad + 1
                )
            )
        elif kind == "distilbert":
            sizes = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
            model = DistilBertModel(
                DistilBertConfig(
                    **sizes, vocab_size=size, pad_token_id=pad, max_position_embeddings=POSITIONS
                )
            )
        else:
            raise ValueError(
                f"There is no tiny {kind!r}: choose bert, distilbert, roberta or electra."
            )
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
