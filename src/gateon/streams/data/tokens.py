"""Texts to token ids: done once, kept beside the data, laid out as one table; and rows of similar length put together."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor

from ...storage.fetch import settle, workplace
from ..draw import permutation

__all__ = ["Text", "Tokens", "by_length", "tokenised", "tokens"]

Text = tuple[str, str | None]
"""A text, or a pair of texts that the tokenizer joins with its separator."""
# batches that are sorted by length together: more would pad less, and always bring the same rows
# together
POOL = 16
_AT_ONCE = 1000  # texts: what is cut off each is in memory too


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token ids of many texts, one behind another.

    Args:
        ids: of all texts, int32.
        lengths: of each, int32.
        cut: which were longer than the limit.
    """

    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    cut: NDArray[np.bool_]

    def table(self, rows: NDArray[np.int64], length: int, pad: int) -> Tensor:
        """The ids of some texts, (len(rows), length), padded at the right.

        >>> three = Tokens(np.arange(1, 7, dtype=np.int32), np.array([1, 3, 2], np.int32), np.zeros(3, np.bool_))
        >>> three.table(np.array([2, 0]), length=4, pad=0)
        tensor([[5, 6, 0, 0],
                [1, 0, 0, 0]])
        """
        ends = np.cumsum(self.lengths, dtype=np.int64)
        taken = np.full((len(rows), length), pad, np.int64)
        for place, row in zip(taken, rows, strict=True):
            place[: self.lengths[row]] = self.ids[ends[row] - self.lengths[row] : ends[row]]
        return torch.from_numpy(taken)


def tokens(
    texts: Sequence[Text], tokenizer: Any, length: int, directory: Path, name: str
) -> Tokens:
    """The texts' tokens, of each at most `length`, read from `directory` where they were put before.

    The file's name has the sha256 of tokenizer, length and texts, so that it is never out of date;
    one that is broken is made again. A directory that cannot be written to is no error.

    Args:
        texts: or pairs of texts; of a pair the longer one is cut.
        tokenizer: a fast tokenizer of transformers.
        length: the most tokens of a text, with those that begin and end it.
        directory: where to keep the file.
        name: the beginning of its name, for people.
    """
    rules = _rules(tokenizer)
    key = sha256(json.dumps([1, length, rules], sort_keys=True).encode())
    for text in texts:
        key.update(json.dumps(text).encode())
    file = directory / f"{name}-{key.hexdigest()[:32]}.safetensors"
    if (kept := _kept(file, len(texts))) is not None:
        return kept
    made = _made(texts, rules, length)
    try:
        with workplace(directory) as place:
            held = {
                "ids": made.ids,
                "lengths": made.lengths,
                "cut": made.cut,
                "sha256": _digest(made),
            }
            save_file(held, place / file.name)
            settle([place / file.name], directory)
    except OSError:
        pass
    return made


def tokenised(texts: Sequence[Text], tokenizer: Any, length: int) -> Tokens:
    """The texts' tokens, of each at most `length`, without a file; arguments as for `tokens`."""
    return _made(texts, _rules(tokenizer), length)


def _rules(tokenizer: Any) -> dict[str, Any]:
    """What a tokenizer does, but for cutting and padding."""
    rules: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return rules | {"truncation": None, "padding": None}


def by_length(order: Tensor, lengths: Tensor, batch: int, key: tuple[int, ...]) -> Tensor:
    """The rows of an epoch in an order in which every `batch` of them in a row are of similar length.

    Batches are formed within pools of several and come in random order. Every row stays, once;
    those beyond the last whole batch stay at the end, so that they are no longer than others.

    Args:
        order: a random order of the rows.
        lengths: of all rows.
        batch: rows in a batch.
        key: decides the order of the batches: seed, task, epoch.

    >>> by_length(torch.tensor([4, 0, 3, 1, 2]), torch.tensor([9, 1, 8, 2, 5]), batch=2, key=(0, 0, 0))
    tensor([4, 0, 1, 3, 2])
    """
    whole = len(order) // batch * batch
    sorted_pools = [
        pool[lengths[pool].argsort(stable=True)] for pool in order[:whole].split(POOL * batch)
    ]
    batches = torch.cat(sorted_pools).view(-1, batch) if sorted_pools else order[:0].view(-1, batch)
    mixed = torch.from_numpy(permutation(len(batches), key[0], "by length", *key[1:]))
    return torch.cat([batches[mixed].flatten(), order[whole:]])


def _made(texts: Sequence[Text], rules: dict[str, Any], length: int) -> Tokens:
    from tokenizers import Tokenizer

    # a copy: how the user's own cuts and pads stays as it is
    machine = Tokenizer.from_str(json.dumps(rules))
    machine.enable_truncation(length)
    ids: list[NDArray[np.int32]] = []
    cut: list[bool] = []
    for some in _chunks(texts):
        for encoding in machine.encode_batch(
            [text if second is None else (text, second) for text, second in some]
        ):
            ids.append(np.array(encoding.ids, np.int32))
            cut.append(bool(encoding.overflowing))
    lengths = np.array([len(row) for row in ids], np.int32)
    return Tokens(
        np.concatenate(ids) if ids else np.zeros(0, np.int32), lengths, np.array(cut, np.bool_)
    )


def _chunks(texts: Sequence[Text]) -> Iterator[Sequence[Text]]:
    return (texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE))


def _kept(file: Path, count: int) -> Tokens | None:
    """What the file holds, if it is whole."""
    try:
        held = load_file(file)
        found = Tokens(held["ids"], held["lengths"], held["cut"])
        whole = (
            np.array_equal(held["sha256"], _digest(found))
            and len(found.lengths) == len(found.cut) == count
        )
    except (OSError, SafetensorError, KeyError, ValueError):
        return None
    return found if whole else None


def _digest(held: Tokens) -> NDArray[np.uint8]:
    digest = sha256()
    for array in (held.ids, held.lengths, held.cut):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return np.frombuffer(digest.digest(), np.uint8)
