"""The streams by name. Reading this imports no stream and no torch; `load` imports one.

To add a stream, write a function that returns it and add a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from ..options.declared import Option, declared
from ..options.kinds import nearest

if TYPE_CHECKING:
    from .base import Stream

__all__ = ["FROM_FILES", "STREAMS", "Entry", "entry", "is_text", "load", "open", "stream_options"]


@dataclass(frozen=True)
class Entry:
    """What is known about a stream before it is imported.

    Args:
        about: one line.
        home: "module:function" in this room.
        network: what learns it by default; texts are always learned by a language model.
    """

    about: str
    home: str
    network: Literal["mlp", "wide-resnet", "language"] = "mlp"


STREAMS: dict[str, Entry] = {
    "permuted-mnist": Entry(
        "Handwritten digits; each task permutes the pixels in its own way.", "mnist:permuted_mnist"
    ),
    "rotated-mnist": Entry(
        "Handwritten digits; each task rotates the images by its own angle.",
        "mnist:rotated_mnist",
    ),
    "shuffled-mnist": Entry(
        "Handwritten digits; each task permutes the labels in its own way.", "mnist:shuffled_mnist"
    ),
    "split-mnist": Entry(
        "Handwritten digits; each task tells a few of the ten digits apart.", "mnist:split_mnist"
    ),
    "split-cifar10": Entry(
        "Photographs; each task tells a few of CIFAR-10's classes apart.",
        "cifar:split_cifar10",
        "wide-resnet",
    ),
    "split-cifar100": Entry(
        "Photographs; each task tells a few of CIFAR-100's classes apart.",
        "cifar:split_cifar100",
        "wide-resnet",
    ),
    "asc": Entry(
        "Sentences about 19 products, one per task: what is said of an aspect, good or bad?",
        "text:asc",
        "language",
    ),
    "dsc": Entry(
        "Reviews of ten kinds of products, one per task: positive or negative?",
        "text:dsc",
        "language",
    ),
    "news20": Entry(
        "Posts to 20 newsgroups, two per task: which of the two is a post from?",
        "text:news20",
        "language",
    ),
    "made-reviews": Entry(
        "Generated reviews of five products, one per task: praise or blame?",
        "text:made_reviews",
        "language",
    ),
}
FROM_FILES: dict[str, Entry] = {
    "own": Entry(
        "Your own tasks: npz files, folders of images, or JSON lines with features.",
        "own_tasks:own",
    ),
    "text": Entry(
        "Your own texts: JSON lines with text, label and, if any, second, task and split.",
        "text:text_lines",
        "language",
    ),
}


def entry(name: str) -> Entry:
    """The entry of a stream: one of `STREAMS`, own:PATH or text:PATH.

    >>> entry("own:data").home
    'own_tasks:own'
    """
    kind, colon, _ = name.partition(":")
    if colon and kind in FROM_FILES:
        return FROM_FILES[kind]
    if name not in STREAMS:
        raise ValueError(
            f"There is no stream {name!r}{nearest(name, STREAMS)}: "
            f"choose {', '.join(STREAMS)}, own:PATH or text:PATH."
        )
    return STREAMS[name]


def is_text(name: str) -> bool:
    """Whether a stream is one of texts.

    >>> is_text("asc"), is_text("text:mine.jsonl"), is_text("split-mnist")
    (True, True, False)
    """
    return entry(name).network == "language"


def load(name: str) -> Callable[..., Stream]:
    """The function that makes a stream, imported now.

    >>> load("split-mnist").__name__
    'split_mnist'
    """
    module, _, function = entry(name).home.partition(":")
    loaded: Callable[..., Stream] = getattr(import_module(f".{module}", __package__), function)
    return loaded


def stream_options(name: str) -> dict[str, Option]:
    """The options of a stream: the arguments of its function, but for seed and model.

    The seed is that of the run, and the model the one that learns the texts.

    >>> list(stream_options("split-mnist"))
    ['tasks', 'classes_per_task', 'in_order', 'validation', 'data']
    """
    return declared(load(name), without=("seed", "model"))


def open(name: str, **options: Any) -> Stream:
    """A stream by its name on the command line: one of `STREAMS`, own:PATH, or text:PATH.

    >>> open("split-mnist", seed=3, data="mnist-5k").tasks
    5
    >>> open("shuffled-mnist", sead=3)
    Traceback (most recent call last):
    ...
    ValueError: shuffled-mnist has no option 'sead', perhaps 'seed': its options are tasks, seed, \
validation, data.
    """
    make = load(name)
    known = list(declared(make))
    for option in options:
        if option not in known:
            hint = nearest(option, known)
            raise ValueError(
                f"{name} has no option {option!r}{hint}: its options are {', '.join(known)}."
            )
    _, colon, path = name.partition(":")
    return make(path, **options) if colon else make(**options)
