"""How data are understood, in words, before anything is learned."""

from collections import Counter
from textwrap import wrap
from typing import Any

from ..storage.files import printable
from .holdout import held_out_words, hold_out
from .read import read
from .understand import Understanding, understand

__all__ = ["check"]

MOST_SHOWN = 10  # labels, tasks
WIDTH = 90  # of a line


def check(
    source: Any,
    text: str | None = None,
    second: str | None = None,
    label: str | None = None,
    image: str | None = None,
    split: str | None = None,
    task: str | None = None,
    largest: int | None = None,
) -> str:
    """How data would be read: kind, columns, labels, parts, doubts.

    Args:
        source: whatever `read` takes.
        text: the column of texts.
        second: the column of second texts.
        label: the column of labels.
        image: the column of images.
        split: the column that says train, validation or test.
        task: the column that says the task.
        largest: bytes a file may take once unpacked; None for a gigabyte.

    >>> print(check(([[0.5], [0.1], [0.9], [0.2]], ["hot", "cold", "hot", "cold"])))
    the pair (x, y): 4 rows, 2 columns
    kind      features
    columns   label: column 'y', by its name.
              features: column 'x0', all that are left.
    labels    2: cold (2), hot (2)
    parts     train (4)
              2 of 4 rows (50%) are held out for measuring, drawn by their content; an accuracy over
              them is good to 69 points. That is too few to say much.
    look at   4 rows to train on are few: results will say little; give 50 or more.
    """
    table = read(source, largest)
    found = understand(table, text, second, label, image, split, task)
    counts = {name: len(rows) for name, rows in found.parts.items()}
    parts = [", ".join(f"{name} ({count:,})" for name, count in counts.items())]
    if "validation" not in found.parts:
        parts += wrap(_held_out(found), WIDTH)
    names = Counter(found.names[row] for rows in found.parts.values() for row in rows)
    labels = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    sections: dict[str, list[str]] = {
        "kind": [found.kind],
        "columns": [line for reason in found.reasons for line in wrap(reason, WIDTH)],
        "labels": wrap(_counted(labels), WIDTH),
        "tasks": wrap(_counted([(name, len(rows)) for name, rows in found.tasks.items()]), WIDTH),
        "parts": parts,
        "look at": [line for warning in found.warnings for line in wrap(warning, WIDTH)],
    }
    if not found.tasks:
        del sections["tasks"]
    head = f"{table.origin}: {table.rows:,} rows, {len(table.columns):,} columns"
    lines = [head]
    for title, content in sections.items():
        lines += [f"{title if n == 0 else '':<10}{line}" for n, line in enumerate(content)]
    return "\n".join(printable(line) for line in lines)


def _held_out(found: Understanding) -> str:
    rows = found.parts["train"]
    labels = [found.names[row] for row in rows]
    return held_out_words(labels, hold_out(labels, [found.keys[row] for row in rows]))


def _counted(counts: list[tuple[str, int]]) -> str:
    shown = ", ".join(f"{name} ({count:,})" for name, count in counts[:MOST_SHOWN])
    more = f" and {len(counts) - MOST_SHOWN} more" if len(counts) > MOST_SHOWN else ""
    return f"{len(counts)}: {shown}{more}"
