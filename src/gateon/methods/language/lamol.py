"""Texts as questions and answers in token ids: how LAMOL writes a sample as one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["IGNORED", "Signs", "padded"]

IGNORED = -100  # a target that does not count


@dataclass(frozen=True)
class Signs:
    """The tokens behind a model's own.

    They are [ANS], [END], those of classes without words, then [GEN_k] and [ASK_k] of each task k.

    Args:
        words: how many tokens the model has of its own.
        classes: how many answers there are.
        words_of: token ids of the answer of each class; None: a sign for each.
        pad: the id that fills texts up at the right.

    >>> signs = Signs(100, 2)
    >>> # 7, 8, [ASK_1], [ANS], the answer, [END]
    >>> signs.sequence(torch.tensor([7, 8, 0, 0]), task=1, label=0)
    tensor([  7,   8, 107, 100, 102, 101])
    """

    words: int
    classes: int
    words_of: Sequence[Sequence[int]] | None = None
    pad: int = 0

    def __post_init__(self) -> None:
        """Validate the answers."""
        given = self.words_of
        if given is not None and (
            len(given) != self.classes or not all(given) or max(map(max, given)) >= self.words
        ):
            raise ValueError(
                f"answers are token ids below {self.words}, one or more for each of {self.classes} "
                "classes."
            )

    @property
    def ans(self) -> int:
        """Behind the question; the answer follows."""
        return self.words

    @property
    def end(self) -> int:
        """Behind the answer."""
        return self.words + 1

    def gen(self, task: int) -> int:
        """A sample of that task follows."""
        return self.words + 2 + (self.classes if self.words_of is None else 0) + 2 * task

    def ask(self, task: int) -> int:
        """The question of that task."""
        return self.gen(task) + 1

    def answer(self, label: int) -> list[int]:
        """What is answered where the label is right."""
        return [self.words + 2 + label] if self.words_of is None else list(self.words_of[label])

    def sequence(self, text: Tensor, task: int, label: int) -> Tensor:
        """text, [ASK_k], [ANS], answer, [END]."""
        return torch.cat(
            [
                text[text != self.pad].cpu(),
                torch.tensor([self.ask(task), self.ans, *self.answer(label), self.end]),
            ]
        )

    def answered(self, sequences: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Inputs, and the token behind each as target; only the answer and [END] count.

        >>> Signs(100, 2).answered([torch.tensor([7, 105, 100, 102, 101])])
        (tensor([[  7, 105, 100, 102]]), tensor([[-100, -100,  102,  101]]))
        """
        ids, targets = padded(sequences, self.pad), padded(sequences, IGNORED)
        begun = (ids == self.ans).cumsum(1) > 0
        return ids[:, :-1], torch.where(begun[:, :-1], targets[:, 1:], IGNORED)

    def is_whole(self, row: Tensor) -> bool:
        """Whether what was written is of that form: something, one [ANS], an answer, [END]."""
        places = (row == self.ans).nonzero()[:, 0]
        return len(places) == 1 and 0 < int(places[0]) < len(row) - 2 and int(row[-1]) == self.end

    def cut(self, row: Tensor) -> Tensor:
        """What was written up to the first [END]; all of it where there is none."""
        ends = (row == self.end).nonzero()[:, 0]
        return row[: int(ends[0]) + 1] if len(ends) else row


def padded(rows: list[Tensor], value: int) -> Tensor:
    """Rows of different lengths as one tensor.

    >>> padded([torch.tensor([1, 2]), torch.tensor([3])], 0)
    tensor([[1, 2],
            [3, 0]])
    """
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)
