"""Streams by their names on the command line."""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from .base import Stream
from .cifar import split_cifar10, split_cifar100
from .compose import blurred, recurring
from .data.images import augmented
from .mnist import permuted_mnist, rotated_mnist, shuffled_mnist, split_mnist
from .own_tasks import own
from .text import asc, dsc, made_reviews, news20, text_lines

__all__ = ["STREAMS", "open", "remake"]

STREAMS: dict[str, Callable[..., Stream]] = {
    "permuted-mnist": permuted_mnist,
    "rotated-mnist": rotated_mnist,
    "shuffled-mnist": shuffled_mnist,
    "split-mnist": split_mnist,
    "split-cifar10": split_cifar10,
    "split-cifar100": split_cifar100,
    "asc": asc,
    "dsc": dsc,
    "news20": news20,
    "made-reviews": made_reviews,
}


def open(name: str, **options: Any) -> Stream:
    """A stream by its name on the command line: one of `STREAMS`, own:PATH, or text:PATH.

    >>> open("split-mnist", seed=3, data="mnist-5k").tasks
    5
    >>> open("shuffled-mnist", sead=3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: shuffled-mnist has no option 'sead', perhaps 'seed': its options are ...
    """
    factory: Callable[..., Stream]
    if name.startswith("own:"):
        path = name.removeprefix("own:")
        factory, known = (
            (lambda **given: own(path, **given)),
            list(inspect.signature(own).parameters)[1:],
        )
    elif name.startswith("text:"):
        path = name.removeprefix("text:")
        factory, known = (
            (lambda **given: text_lines(path, **given)),
            list(inspect.signature(text_lines).parameters)[1:],
        )
    elif name in STREAMS:
        factory, known = STREAMS[name], list(inspect.signature(STREAMS[name]).parameters)
    else:
        raise ValueError(
            f"There is no stream {name!r}{_nearest(name, list(STREAMS))}: "
            f"choose {', '.join(STREAMS)}, own:PATH or text:PATH."
        )
    for option in options:
        if option not in known:
            hint = _nearest(option, known)
            raise ValueError(
                f"{name} has no option {option!r}{hint}: its options are {', '.join(known)}."
            )
    return factory(**options)


def remake(settings: dict[str, Any]) -> Stream:
    """The stream that has these `settings`, as a record keeps them.

    >>> first = recurring(open("permuted-mnist", tasks=2, data="mnist-5k"), repeats=2)
    >>> remake(first.settings).fingerprint(3) == first.fingerprint(3)
    True
    """
    rest = dict(settings)
    name = rest.pop("stream")
    tokenizer = rest.pop("tokenizer", None)
    if name not in ("recurring", "blurred", "augmented"):
        made = open(name, **rest)
        if made.settings.get("tokenizer") != tokenizer:
            raise ValueError(
                f"The tokenizer of {rest['model']} is not the one of these settings: "
                "it has another vocabulary."
            )
        return made
    stream = remake(rest.pop("of"))
    if name == "augmented":
        return augmented(stream)
    return (
        recurring(stream, rest["order"])
        if name == "recurring"
        else blurred(stream, rest["width"], rest["seed"])
    )


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f", perhaps {close[0]!r}" if close else ""
