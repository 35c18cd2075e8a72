"""A tiny random language model with a tokenizer, to try things without a pretrained one."""

from __future__ import annotations

import os
import shutil
import string
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

__all__ = ["tiny_bert"]

SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
# Common words of reviews; all others are spelled letter by letter.
WORDS = (
    "a after again all and are as at bad battery big box broken but button buy camera case cheap "
    "cord cup dim drill fan fast fine for good great hard has heavy hot i in is it its kettle "
    "knife lamp lens light long loud motor my never nice no not of old on one or picture plug poor "
    "price quiet rather really sharp short slow small so soft sound speaker strong switch terrible "
    "than that the this to too very was weak wide with works would you"
)
POSITIONS = 64
VERSION = 1  # of the files; each version has its own directory


def tiny_bert() -> Path:
    """The directory of a random BERT with 32 units, 2 layers and 2 heads, created if needed.

    It comes with a small word-piece tokenizer, is the same on every machine, and lies in the user's
    cache directory.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gateon"
    place = cache / f"tiny-bert-{VERSION}"
    if not (place / "config.json").is_file():
        cache.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=cache, prefix="tiny-bert-"))
        _write(aside)
        with suppress(OSError):  # another process was faster and made the same
            aside.rename(place)
        shutil.rmtree(aside, ignore_errors=True)
    return place


def _write(place: Path) -> None:
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from tokenizers.processors import TemplateProcessing

    kinds: Any = transformers  # its classes have no types
    letters = string.ascii_lowercase + string.digits
    pieces = [
        *SPECIAL.values(),
        *string.punctuation,
        *letters,
        *(f"##{letter}" for letter in letters),
        *WORDS.split(),
    ]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    kinds.PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=POSITIONS, **SPECIAL
    ).save_pretrained(place)
    config = kinds.BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=len(vocabulary),
        pad_token_id=0,
        max_position_embeddings=POSITIONS,
        initializer_range=0.2,  # larger than usual, so that random weights tell words apart
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kinds.BertModel(config)
    config.save_pretrained(place)
    save_file(model.state_dict(), place / "model.safetensors", {"format": "pt"})
