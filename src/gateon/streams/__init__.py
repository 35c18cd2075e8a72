"""Streams of tasks: benchmarks, the user's own data, and variations of any of them.

Imports `networks` and `storage`. Names are imported when they are first used: what finds and
verifies files (`data`) works without torch.
"""

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .base import PARTS, Part, Split, Stream, Task
    from .cifar import split_cifar10, split_cifar100
    from .compose import blurred, recurring
    from .data import sources
    from .data.images import augmented
    from .data.tokens import by_length
    from .mnist import permuted_mnist, rotated_mnist, shuffled_mnist, split_mnist
    from .own_tasks import own
    from .registry import STREAMS, open
    from .remaking import remake
    from .text import asc, dsc, made_reviews, news20, text_lines

__all__ = [
    "PARTS",
    "STREAMS",
    "Part",
    "Split",
    "Stream",
    "Task",
    "asc",
    "augmented",
    "blurred",
    "by_length",
    "dsc",
    "made_reviews",
    "news20",
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
    "text_lines",
]

NAMES = {
    "base": ("PARTS", "Part", "Split", "Stream", "Task"),
    "cifar": ("split_cifar10", "split_cifar100"),
    "compose": ("blurred", "recurring"),
    "data.images": ("augmented",),
    "data.tokens": ("by_length",),
    "mnist": ("permuted_mnist", "rotated_mnist", "shuffled_mnist", "split_mnist"),
    "own_tasks": ("own",),
    "registry": ("STREAMS", "open"),
    "remaking": ("remake",),
    "text": ("asc", "dsc", "made_reviews", "news20", "text_lines"),
}
__getattr__ = lazily(__name__, NAMES, {"sources": "data.sources"})
