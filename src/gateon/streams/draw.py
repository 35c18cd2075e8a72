"""Random draws that are the same on every machine and under every version of numpy.

Only two things are taken from numpy: `SeedSequence` and the raw words of `PCG64`, whose outputs are
guaranteed never to change. (`Generator.permutation` and its like carry no such promise.) Every draw
has its own key, so that what is drawn for task 7 depends neither on the number of tasks nor on what
was drawn before.
"""

from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

__all__ = ["permutation", "uniform"]


def _words(count: int, seed: int, key: tuple[str | int, ...]) -> NDArray[np.uint64]:
    entropy = int.from_bytes(sha256(repr((seed, *key)).encode()).digest(), "big")
    return np.random.PCG64(np.random.SeedSequence(entropy)).random_raw(count)


def permutation(count: int, seed: int, *key: str | int) -> NDArray[np.int64]:
    """A random order of 0 ... count-1: the stable sorting order of as many random 64-bit words.

    >>> permutation(5, 0, "example").tolist()
    [3, 0, 2, 1, 4]
    """
    return np.argsort(_words(count, seed, key), kind="stable").astype(np.int64)


def uniform(count: int, seed: int, *key: str | int) -> NDArray[np.float64]:
    """Random numbers in [0, 1): the upper 53 bits of random 64-bit words.

    >>> uniform(2, 0, "example").round(3).tolist()
    [0.312, 0.739]
    """
    return (_words(count, seed, key) >> np.uint64(11)).astype(np.float64) * 2.0**-53
