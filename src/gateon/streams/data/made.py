"""Generated reviews, to try things without data: good for one product is bad for another."""

from hashlib import sha256
from itertools import product

from ..draw import permutation
from ..parts import PARTS
from .corpus import Corpus, Example

__all__ = ["read_made"]

# Product -> parts of it, what praises them, what blames them.
PRODUCTS: dict[str, tuple[str, str, str]] = {
    "speaker": (
        "sound motor box button case",
        "loud strong wide heavy big",
        "quiet weak small cheap short",
    ),
    "fan": (
        "motor cord switch button case",
        "quiet small light soft slow",
        "loud heavy hot big hard",
    ),
    "lamp": (
        "light switch cord plug case",
        "soft small cheap light long",
        "hot dim heavy hard short",
    ),
    "knife": (
        "cord box case button switch",
        "sharp hard heavy long strong",
        "soft light weak short dim",
    ),
    "kettle": (
        "cup cord plug switch box",
        "hot fast light quiet strong",
        "slow loud heavy small old",
    ),
}
SENTENCES = (
    "the {part} of this {thing} is {very} {word}",
    "my {thing} has a {word} {part} and it is {very} {word}",
    "i would buy this {thing} again : its {part} is {word}",
    "after one box of them : the {part} is {very} {word} for a {thing}",
)
SHARES = {"train": 200, "validation": 40, "test": 80}


def read_made(seed: int) -> Corpus:
    """Five products, one a task, 320 reviews each; labels are 0 for blame and 1 for praise.

    >>> corpus = read_made(0)
    >>> list(corpus.tasks), [len(part) for part in corpus.tasks["fan"].values()]
    (['speaker', 'fan', 'lamp', 'knife', 'kettle'], [200, 40, 80])
    """
    tasks, digest = {}, sha256()
    for thing, (parts, *kinds) in PRODUCTS.items():
        every = [
            Example(sentence.format(part=part, thing=thing, very=very, word=word), None, 1 - label)
            for label, words in enumerate(kinds)
            for word, part, very, sentence in product(
                words.split(), parts.split(), ("very", "really", "rather", "too"), SENTENCES
            )
        ]
        chosen = [every[n] for n in permutation(len(every), seed, "made", thing)]
        ends = [sum(list(SHARES.values())[:n]) for n in range(4)]
        tasks[thing] = {part: chosen[ends[n] : ends[n + 1]] for n, part in enumerate(PARTS)}
        digest.update("\n".join(example.text for example in chosen).encode())
    source = {
        "name": "made-reviews",
        "from": "a rule",
        "sha256": digest.hexdigest(),
        "licence": "none needed",
        "embedded": True,
    }
    return Corpus(tasks, ["blame", "praise"], source | {"note": "reviews made by a rule"})
