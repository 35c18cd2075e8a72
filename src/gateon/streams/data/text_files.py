"""Three published sets of labelled texts, read from the data directory and verified."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...storage.fetch import UnavailableError, where
from ...storage.files import content_of
from ..parts import PARTS
from .corpus import Corpus, Example, Parts, dealt
from .formats import LARGEST, json_lines
from .own_files import PART_NAMES

__all__ = ["PUBLISHED", "Published", "found_texts", "read_asc", "read_dsc", "read_news20", "verify"]

POLARITIES = ["positive", "negative", "neutral"]
GROUPS = [  # task k of the published orders has groups 2k and 2k + 1
    *(
        "comp.graphics",
        "comp.os.ms-windows.misc",
        "comp.sys.ibm.pc.hardware",
        "comp.sys.mac.hardware",
        "comp.windows.x",
    ),
    *(
        "rec.autos",
        "rec.motorcycles",
        "rec.sport.baseball",
        "rec.sport.hockey",
        "sci.crypt",
        "sci.electronics",
        "sci.med",
    ),
    *(
        "sci.space",
        "misc.forsale",
        "talk.politics.misc",
        "talk.politics.guns",
        "talk.politics.mideast",
        "talk.religion.misc",
    ),
    *("alt.atheism", "soc.religion.christian"),
]


@dataclass(frozen=True)
class Published:
    """A published set: its files, the sha256 of their decoded rows and lines, and what it is."""

    rows: str
    rows_sha256: str
    orders: str
    orders_sha256: str
    licence: str
    bytes: int
    about: str


PUBLISHED = {
    "asc": Published(
        "asc19.jsonl",
        "03e8c3fe6d49e736f42030586a862cd1a43ffd2b13feff3793c16afc5ae141d8",
        "asc_random.tsv",
        "e0d9d9e09f635b1adccae1a1b8a1346f35f67f7d306095407223927681510bcf",
        "Hu and Liu reviews CC BY 4.0; SemEval-14 for research",
        507_665,
        "13,464 sentences about 19 products, a term in each judged: positive, negative or neutral",
    ),
    "dsc": Published(
        "dsc10.jsonl",
        "3613291c4e601086bc1fda4260ed73aa57ec382725c30eb1bcbd8e2fd7b8038e",
        "dsc_random_10.tsv",
        "e225579d6e71ef77c95dc653a0bb4239bd9f3792432de8182f89b2251b6273af",
        "Amazon reviews, for research",
        8_518_820,
        "reviews of 10 kinds of products: positive or negative",
    ),
    "news20": Published(
        "news20_19997.jsonl",
        "84d050247db40e0699b7496e424d83378f51f50511aba809b57c861ce95b8953",
        "newsgroup_random_10.tsv",
        "39c740040b849487831322b23293ec4403a3970ba43e7783f175fd1dff7c171f",
        "none stated; cite Lang 1995",
        9_786_876,
        "19,997 posts of 20 newsgroups",
    ),
}


def read_asc() -> Corpus:
    """Sentences about 19 products; a term in each is judged positive, negative or neutral.

    The term comes first, then the sentence, as in the paper.
    """

    def example(row: dict[str, Any]) -> Example:
        return Example(row["term"], row["sentence"], POLARITIES.index(row["polarity"]))

    return _sorted_by_product("asc", lambda task: str(task).split("_", 1)[1], example, POLARITIES)


def read_dsc() -> Corpus:
    """Reviews of ten kinds of products: positive or negative."""

    def example(row: dict[str, Any]) -> Example:
        return Example(row["text"], None, int(row["label"] == 1))

    return _sorted_by_product(
        "dsc", lambda task: str(task).replace("_", " "), example, ["negative", "positive"]
    )


def read_news20(keep_headers: bool, by_date: bool, seed: int) -> Corpus:
    """Posts of 20 newsgroups, two to a task; which of the two is the label."""
    source, rows, orders = _verified("news20")
    posts: dict[tuple[str, str | None], list[str]] = {}
    empty = 0
    for row in rows:
        if row["bydate"] is None and by_date:
            continue
        text = row["text"] if keep_headers else body(row["text"])
        empty += not text.strip()
        if text.strip():
            posts.setdefault((row["group"], row["bydate"] if by_date else None), []).append(text)
    names = [f"{one}, {other}" for one, other in zip(GROUPS[::2], GROUPS[1::2], strict=True)]
    tasks: dict[str, Parts] = {name: {part: [] for part in PARTS} for name in names}
    for number, group in enumerate(GROUPS):
        texts = posts[group, "train" if by_date else None]
        rows_of = dealt(len(texts), 0 if by_date else 10, 10, seed, "news20", group)
        divided = {part: [texts[row] for row in rows_of[part]] for part in PARTS}
        if by_date:
            divided["test"] = posts[group, "test"]
        for part in PARTS:
            tasks[names[number // 2]][part] += [
                Example(text, None, number % 2) for text in divided[part]
            ]
    numbered = [[names[int(name.removeprefix("newsgroup_"))] for name in order] for order in orders]
    return Corpus(tasks, None, source, numbered, empty)


def body(post: str) -> str:
    """A post without headers, footers and quotes, as these words are used with this set.

    Headers end at the first blank line. A footer is what stands behind the last line that is blank
    or of dashes, where there is such a line. Quotes are lines that begin with > or |, and those
    that introduce them.

    >>> header = "From: a@b.c\\nSubject: orbits"
    >>> quote = "In article <1> d@e.f writes:\\n> How high?"
    >>> body(f"{header}\\n\\n{quote}\\n400 km.\\n\\n--\\nAnn")
    '400 km.\\n'
    """
    lines = post.partition("\n\n")[2].strip().split("\n")
    breaks = [number for number, line in enumerate(lines) if not line.strip().strip("-")]
    kept = lines[: breaks[-1]] if breaks and breaks[-1] > 0 else lines
    return "\n".join(line for line in kept if not _QUOTE.search(line))


_QUOTE = re.compile(r"^\s*[>|]|^In article|(writes|wrote|says|said):\s*$|writes in ")


def found_texts(name: str) -> list[Path]:
    """The files of a published set, if both are there; the rows may be compressed."""
    known, directory = PUBLISHED[name], where() / name
    packed = [directory / f"{known.rows}{suffix}" for suffix in (".gz", ".xz", ".bz2", "")]
    rows, orders = next((file for file in packed if file.is_file()), None), directory / known.orders
    return [rows, orders] if rows and orders.is_file() else []


def verify(name: str) -> None:
    """Read a published set and compare it with what is known of it."""
    _verified(name)


def _verified(name: str) -> tuple[dict[str, Any], list[dict[str, Any]], list[list[str]]]:
    """Source, rows and orders of a published set."""
    known, files = PUBLISHED[name], found_texts(name)
    if not files:
        wanted = f"{known.rows} (or .gz, .xz, .bz2 of it) and {known.orders}"
        raise UnavailableError(
            f"{name} is not in {where() / name}, and there is no address to fetch it from: "
            f"put {wanted} there."
        )
    rows = list(json_lines(files[0]))
    orders = [
        line.split("\t")
        for line in content_of(files[1], LARGEST).decode(errors="replace").splitlines()
    ]
    for file, content, wanted in (
        (files[0], rows, known.rows_sha256),
        (files[1], orders, known.orders_sha256),
    ):
        digest = sha256(
            "".join(json.dumps(line, sort_keys=True) for line in content).encode()
        ).hexdigest()
        if digest != wanted:
            advice = f"replace it, or open texts of your own as text:{file}"
            raise ValueError(
                f"{file} is not the published file: the sha256 of its lines is {digest}, "
                f"not {wanted}; {advice}."
            )
    sums = {"rows": known.rows_sha256, "orders": known.orders_sha256}
    source = {
        "name": name,
        "from": "files found in the data directory",
        "sha256": sums,
        "licence": known.licence,
        "embedded": False,
    }
    return source, rows, orders


def _sorted_by_product(
    name: str,
    product: Callable[[str], str],
    example: Callable[[dict[str, Any]], Example],
    classes: list[str],
) -> Corpus:
    source, rows, orders = _verified(name)
    tasks: dict[str, Parts] = {}
    for row in rows:
        parts = tasks.setdefault(product(row["task"]), {part: [] for part in PARTS})
        parts[PART_NAMES[row["split"]]].append(example(row))
    return Corpus(tasks, classes, source, [[product(task) for task in order] for order in orders])
