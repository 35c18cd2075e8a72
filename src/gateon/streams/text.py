"""Streams of texts: aspects of products (ASC), reviews (DSC), newsgroups (20News), and the user's own JSON lines.

Inputs are token ids of one pretrained model, padded at the right to one length. Texts are tokenised
once and kept in `tokens` in the data directory. The three benchmarks come with twenty published
orders of their tasks.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..networks import pretrained
from ..options.kinds import Count
from ..storage.bounded import largest_of
from ..storage.fetch import where
from .base import PARTS, Part, Split, Stream, Tasks, assemble, whole
from .data.corpus import Corpus, Example
from .data.made import read_made
from .data.text_files import read_asc, read_dsc, read_news20
from .data.tokens import tokens
from .draw import permutation
from .text_own import read_lines

__all__ = ["asc", "dsc", "made_reviews", "news20", "text_lines"]

Model = str | Path | None


def asc(
    tasks: Tasks | None = None,
    order: int = 0,
    model: Model = None,
    length: Count = 128,
    limit: Count | None = None,
    seed: int = 0,
) -> Stream:
    """19 products, one a task: is what a sentence says of a term positive, negative or (two tasks) neutral?

    The input is "[CLS] term [SEP] sentence [SEP]" or what the model's tokenizer makes of a pair.
    Labels are 0 for positive, 1 for negative, 2 for neutral; the parts are the published ones.

    Args:
        tasks: number of tasks, from the start of the order; all by default.
        order: which of the published orders of tasks, 0 to 19.
        model: whose tokenizer: "minilm" by default, "mpnet-base", "smollm2-135m", a local
            directory, or a name on a hub.
        length: tokens per text; longer texts are cut off, and counted in the record.
        limit: largest number of training texts per task, classes in proportion; all by default.
        seed: draws the texts within that limit.

    >>> asc(order=-1)
    Traceback (most recent call last):
    ...
    ValueError: order must be a whole number of at least 0, got -1.
    """
    return _stream("asc", read_asc, {}, tasks, order, model, length, limit, seed)


def dsc(
    tasks: Tasks | None = None,
    order: int = 0,
    model: Model = None,
    length: Count = 128,
    limit: Count | None = None,
    seed: int = 0,
) -> Stream:
    """Ten kinds of products, one a task: is a review negative (0) or positive (1)?

    The parts are the published ones.

    Args:
        tasks: number of tasks, from the start of the order; all by default.
        order: which of the published orders of tasks, 0 to 19.
        model: whose tokenizer: "minilm" by default, "mpnet-base", "smollm2-135m", a local
            directory, or a name on a hub.
        length: tokens per text; longer texts are cut off, and counted in the record.
        limit: largest number of training texts per task, classes in proportion; all by default.
        seed: draws the texts within that limit.

    >>> dsc(length=3)
    Traceback (most recent call last):
    ...
    ValueError: length must be a whole number of at least 8, got 3.
    """
    return _stream("dsc", read_dsc, {}, tasks, order, model, length, limit, seed)


def news20(
    tasks: Tasks | None = None,
    order: int = 0,
    model: Model = None,
    length: Count = 128,
    limit: Count | None = None,
    seed: int = 0,
    *,
    keep_headers: bool = False,
    by_date: bool = True,
) -> Stream:
    """Ten pairs of newsgroups, one a task: in which of the two was a post written, the first (0) or the second (1)?

    Headers name the newsgroup, and footers and quotes the people who write in it: they are taken
    out, and posts of which nothing is left are dropped and counted in `source`. Posts are divided
    by their date, so that no discussion is in training and test alike; copies and posts sent to
    several groups, which that division leaves out, are not used. Published figures of continual
    learning come from whole posts divided at random, 8 : 1 : 1: `keep_headers=True, by_date=False`
    does that.

    Args:
        tasks: number of tasks, from the start of the order; all by default.
        order: which of the published orders of tasks, 0 to 19.
        model: whose tokenizer: "minilm" by default, "mpnet-base", "smollm2-135m", a local
            directory, or a name on a hub.
        length: tokens per text; longer texts are cut off, and counted in the record.
        limit: largest number of training texts per task, classes in proportion; all by default.
        seed: draws what is held out for validation, and the parts where dates do not decide.
        keep_headers: keep headers, footers and quotes.
        by_date: divide posts by their date; otherwise all 19,997 posts are divided at random, 8 : 1
            : 1 in every group.

    >>> news20(keep_headers="no")
    Traceback (most recent call last):
    ...
    ValueError: keep_headers must be true or false, got 'no'.
    """
    for name, value in (("keep_headers", keep_headers), ("by_date", by_date)):
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, got {value!r}.")
    chosen = {"keep_headers": keep_headers, "by_date": by_date}
    return _stream(
        "news20",
        lambda: read_news20(**chosen, seed=seed),
        chosen,
        tasks,
        order,
        model,
        length,
        limit,
        seed,
    )


def text_lines(
    path: Path | str,
    tasks: Tasks | None = None,
    model: Model = None,
    length: Count = 128,
    limit: Count | None = None,
    seed: int = 0,
    data_limit: float | None = None,
) -> Stream:
    """The user's own texts: a file of JSON lines (also .gz, .xz, .bz2), one object a line.

    - text and, for pairs, second: the input; - label: a whole number from 0 up, or a name; names
    are numbered in their sorted order; - task: tasks come in the order of their first rows; without
    it there is one task; - split: train, validation or test; without it a fifth of every class is
    drawn to test and a tenth to validate.

    Args:
        path: the file.
        tasks: number of tasks, in the order of the file; all by default.
        model: whose tokenizer: "minilm" by default, "mpnet-base", "smollm2-135m", a local
            directory, or a name on a hub.
        length: tokens per text; longer texts are cut off, and counted in the record.
        limit: largest number of training texts per task, classes in proportion; all by default.
        seed: draws what is held out, and what `limit` leaves.
        data_limit: gigabytes that the file may take once unpacked; 1 by default.

    >>> text_lines("reviews.txt", limit=0)
    Traceback (most recent call last):
    ...
    ValueError: limit must be a whole number of at least 1, got 0.
    """
    path, largest = Path(path).expanduser(), largest_of(data_limit)
    return _stream(
        f"text:{path}",
        lambda: read_lines(path, seed, largest),
        {} if data_limit is None else {"data_limit": data_limit},
        tasks,
        None,
        model,
        length,
        limit,
        seed,
    )


def made_reviews(
    tasks: Tasks | None = None,
    model: Model = "tiny",
    length: Count = 24,
    limit: Count | None = None,
    seed: int = 0,
) -> Stream:
    """Five products, one a task: does a review made by a rule praise (1) or blame (0)? What is good for one is bad for another.

    It needs no data, and by default a tiny random model: for trying things, not for measuring them.

    Args:
        tasks: number of tasks; all five by default.
        model: whose tokenizer: "tiny" by default, a local directory, or a name on a hub.
        length: tokens per text; longer texts are cut off, and counted in the record.
        limit: largest number of training texts per task, classes in proportion; all by default.
        seed: makes the reviews, and draws the texts within that limit.
    """
    return _stream(
        "made-reviews", lambda: read_made(seed), {}, tasks, None, model, length, limit, seed
    )


def _stream(
    name: str,
    read: Callable[[], Corpus],
    more: dict[str, Any],
    tasks: int | None,
    order: int | None,
    model: Model,
    length: int,
    limit: int | None,
    seed: int,
) -> Stream:
    seed, length = whole("seed", seed, least=0), whole("length", length, least=8)
    limit = None if limit is None else whole("limit", limit, least=1)
    order = None if order is None else whole("order", order, least=0)
    corpus = read()
    names = _chosen(corpus, tasks, order)
    every = list(corpus.tasks)
    drawn = {(task, part): corpus.tasks[task][part] for task in names for part in PARTS}
    if limit is not None:
        for task in names:
            drawn[task, "train"] = _limited(drawn[task, "train"], limit, seed, task)

    tokenizer = pretrained.tokenizer(model)
    longest = pretrained.longest(tokenizer, pretrained.config(model))
    if longest is not None and length > longest:
        raise ValueError(
            f"length must be at most {longest}, which is what {model or 'minilm'} can read, got {length}."
        )
    texts = [(example.text, example.second) for examples in drawn.values() for example in examples]
    held = tokens(texts, tokenizer, length, where() / "tokens", name.split(":")[0])
    ends = np.cumsum([len(examples) for examples in drawn.values()])
    rows = {
        key: np.arange(end - len(drawn[key]), end)
        for key, end in zip(drawn, ends.tolist(), strict=True)
    }

    def make_split(k: int, part: Part) -> Split:
        key = names[k], part
        return Split(
            held.table(rows[key], length, tokenizer.pad_token_id),
            torch.tensor([example.label for example in drawn[key]], dtype=torch.int64),
            lengths=torch.from_numpy(held.lengths[rows[key]].astype(np.int64)),
        )

    known = {
        "pad": tokenizer.pad_token_id,
        "vocabulary": len(tokenizer),
        "sha256": pretrained.vocabulary_digest(tokenizer),
    }
    settings = {"stream": name, "tasks": len(names)} | ({} if order is None else {"order": order})
    settings |= {
        "model": "minilm" if model is None else str(model),
        "length": length,
        "limit": limit,
        "seed": seed,
    }
    return Stream(
        name=name,
        tasks=len(names),
        classes=len(corpus.classes) if corpus.classes else 2,
        shape=(length,),
        settings=settings | more | {"tokenizer": known},
        source=corpus.source | _said(corpus, held.cut, length),
        make=lambda k: assemble(names[k], every.index(names[k]), lambda part: make_split(k, part)),
        make_split=make_split,
        labels=None if corpus.classes is None else lambda k: corpus.classes or (),
    )


def _chosen(corpus: Corpus, tasks: int | None, order: int | None) -> list[str]:
    """The names of the tasks, in the order asked for."""
    names = list(corpus.tasks)
    if order is not None:
        if order >= len(corpus.orders):
            raise ValueError(
                f"order must be one of the published ones, 0 to {len(corpus.orders) - 1}, got {order}."
            )
        names = corpus.orders[order]
    if tasks is not None and whole("tasks", tasks, least=1) > len(names):
        raise ValueError(
            f"tasks must be at most {len(names)}, which is how many there are, got {tasks}."
        )
    return names[:tasks]


def _limited(examples: list[Example], limit: int, seed: int, task: str) -> list[Example]:
    """So many of the examples, of every class in proportion and one at least, in their order.

    >>> few = _limited([Example("a", None, 0)] * 90 + [Example("b", None, 1)] * 10, 20, 0, "task")
    >>> [example.label for example in few].count(1), len(few)
    (2, 20)
    """
    labels = np.array([example.label for example in examples])
    classes, counts = np.unique(labels, return_counts=True)
    if len(examples) <= limit:
        return examples
    if limit < len(classes):
        raise ValueError(
            f"limit must be at least {len(classes)}, the number of classes of task {task!r}, got {limit}."
        )
    order = permutation(len(examples), seed, "limit", task)
    ranked: list[NDArray[np.int64]] = [order[labels[order] == label] for label in classes]
    # The first of every class come first; then each class at an even pace of its own, so that any
    # beginning is in proportion.
    pace = np.concatenate(
        [np.where(np.arange(count) == 0, -1, (np.arange(count) + 0.5) / count) for count in counts]
    )
    kept = np.concatenate(ranked)[np.argsort(pace, kind="stable")[:limit]]
    return [examples[row] for row in np.sort(kept)]


def _said(corpus: Corpus, cut: NDArray[np.bool_], length: int) -> dict[str, Any]:
    """What happened to texts: counted, and in a sentence where something did."""
    counts: dict[str, Any] = {"texts": len(cut), "truncated": int(cut.sum()), "empty": corpus.empty}
    notes = (
        [f"{counts['truncated']} of {len(cut)} texts are longer than {length} tokens and cut"]
        if counts["truncated"]
        else []
    )
    notes += [f"{corpus.empty} texts are empty and left out"] if corpus.empty else []
    return (
        counts
        | ({"note": "; ".join(notes)} if notes else {})
        | ({"classes": corpus.classes} if corpus.classes else {})
    )
