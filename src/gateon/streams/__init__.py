"""Streams of tasks: benchmarks, the user's own, and any of them with tasks that return or boundaries that blur."""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from . import sources
from .base import PARTS, Part, Split, Stream, Task
from .cifar import split_cifar10, split_cifar100
from .compose import blurred, recurring
from .images import augmented
from .mnist import permuted_mnist, rotated_mnist, shuffled_mnist, split_mnist
from .own import own

__all__ = [
    "PARTS",
    "STREAMS",
    "Part",
    "Split",
    "Stream",
    "Task",
    "augmented",
    "blurred",
    "open",
    "own",
    "permuted_mnist",
    "recurring",
    "remake",
    "rotated_mnist",
    "shuffled_mnist",
    "sources",
    "split_cifar10",
    "split_cifar100",
    "split_mnist",
]

STREAMS: dict[str, Callable[..., Stream]] = {
    "permuted-mnist": permuted_mnist,
    "rotated-mnist": rotated_mnist,
    "shuffled-mnist": shuffled_mnist,
    "split-mnist": split_mnist,
    "split-cifar10": split_cifar10,
    "split-cifar100": split_cifar100,
}


def open(name: str, **options: Any) -> Stream:
    """A stream by its name on the command line: one of `STREAMS`, or own:PATH.

    >>> open("split-mnist", seed=3, data="mnist-5k").tasks
    5
    >>> open("shuffled-mnist", sead=3)
    Traceback (most recent call last):
    ...
    ValueError: shuffled-mnist has no option 'sead', perhaps 'seed': its options are tasks, seed, validation, data.
    """
    factory: Callable[..., Stream]
    if name.startswith("own:"):
        path = name.removeprefix("own:")
        factory, known = (lambda **given: own(path, **given)), ["seed"]
    elif name in STREAMS:
        factory, known = STREAMS[name], list(inspect.signature(STREAMS[name]).parameters)
    else:
        raise ValueError(f"There is no stream {name!r}{_nearest(name, list(STREAMS))}: choose {', '.join(STREAMS)} or own:PATH.")
    for option in options:
        if option not in known:
            hint = _nearest(option, known)
            raise ValueError(f"{name} has no option {option!r}{hint}: its options are {', '.join(known)}.")
    return factory(**options)


def remake(settings: dict[str, Any]) -> Stream:
    """The stream that has these `settings`, as a record keeps them.

    >>> first = recurring(open("permuted-mnist", tasks=2, data="mnist-5k"), repeats=2)
    >>> remake(first.settings).fingerprint(3) == first.fingerprint(3)
    True
    """
    rest = dict(settings)
    name = rest.pop("stream")
    if name not in ("recurring", "blurred", "augmented"):
        return open(name, **rest)
    stream = remake(rest.pop("of"))
    if name == "augmented":
        return augmented(stream)
    return recurring(stream, rest["order"]) if name == "recurring" else blurred(stream, rest["width"], rest["seed"])


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f", perhaps {close[0]!r}" if close else ""
