"""What the columns of a table are. All rules, in the order in which they are applied:

1. A column that you name is taken.
2. `split`: a column called split, part, set, subset or fold in which words are names of parts
   (train, training; validation, valid, val, dev; test, testing). Then all of them must be.
3. `task`: a column called task or domain that does not read like prose.
4. `image`: a column of pixels or pictures; else of words that all end like image files (.png ...).
5. `text`: a column of words called text, message, utterance, question, sentence, query, review,
   comment, tweet, post, email, ticket, document, prompt or x; with its `second` for the pairs in
   `PAIRS`. Otherwise the only column of words that reads like prose (three words a cell, mostly
   different).
6. `label`: a column called label, labels, intent, class, target, category or y. Otherwise, for
   texts and images, the only column that is left.
7. With neither image nor text, every column that is left is a feature: numbers, or words of at
   most 100 kinds (categories). Identifiers and words of more kinds are left out.

Case, blanks and hyphens in names do not matter. Where the rules do not decide, an error lists the
columns and asks. Labels and tasks are names: 1 becomes "1".
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from ..storage.files import printable
from .parts import part_of
from .table import Table, is_image_path, is_missing

__all__ = ["Columns", "Kind"]

Kind = Literal["texts", "images", "features"]

SPLIT_NAMES = ("split", "part", "set", "subset", "fold")
TASK_NAMES = ("task", "domain")
LABEL_NAMES = ("label", "labels", "intent", "class", "target", "category", "y")
TEXT_NAMES = (
    *("text", "message", "utterance", "question", "sentence", "query", "review", "comment"),
    *("tweet", "post", "email", "ticket", "document", "prompt", "x"),
)
PAIRS = {
    "text": "second",
    "text_a": "text_b",
    "text1": "text2",
    "sentence1": "sentence2",
    "sentence_a": "sentence_b",
    "question1": "question2",
    "premise": "hypothesis",
    "question": "sentence",
    "query": "passage",
}
ID_NAMES = ("id", "index", "uuid", "guid", "key", "row")
MOST_CATEGORIES = 100
_LOOKED_AT = 1000  # cells that show whether a column reads like prose


class Columns:
    """The columns of a table while their uses are being decided."""

    def __init__(self, table: Table, named: dict[str, str], like: Mapping[str, Any]) -> None:
        self.table, self.named, self.like = table, named, dict(like)
        self.inputs_before: list[str] = self.like.get("inputs", [])
        if self.like.get("kind") == "images":
            self.like["image"] = self.inputs_before[0]
        self.reasons: list[str] = []
        self.warnings: list[str] = []
        self.taken: set[str] = set()
        for use, name in named.items():
            if name not in table.columns:
                raise ValueError(
                    f"{table.origin} has no column {printable(name)!r} for --{use}: "
                    f"its columns are {self.listed()}."
                )
        for name, count in Counter(named.values()).items():
            if count > 1:
                uses = " and ".join(f"--{use}" for use in named if named[use] == name)
                raise ValueError(f"Column {name!r} cannot be both {uses}: name another for one.")
        if "text" in named and "image" in named:
            raise ValueError("Data are texts or images, not both: leave out --text or --image.")
        if "second" in named and "text" not in named:
            raise ValueError("--second needs --text: name the column of first texts too.")
        self.plain = {_plain(name): name for name in reversed(table.columns)}
        self.taken |= set(named.values())
        self.split = self.take("split", self.by_name(SPLIT_NAMES, self.says_parts))
        self.task = self.take("task", self.by_name(TASK_NAMES, self.says_tasks))
        self.label: str | None = None

    def decide(self, labelled: bool) -> tuple[Kind, tuple[str, ...]]:
        """The kind of data and the columns a network sees; the label on the way."""
        label_by_name = self.label_by_name(labelled)
        image = None if "text" in self.named else self.take("image", self.find_image())
        if image:
            if labelled and set(self.table.columns) == {image}:
                raise ValueError(
                    f"{self.table.origin} holds images without labels: put every image at CLASS/FILE."
                )
            self.label = label_by_name or self.only_column_left(labelled)
            return "images", (image,)
        text = self.find_text()
        if text:
            self.label = label_by_name or self.only_column_left(labelled)
            self.ignore_the_rest()
            return "texts", text
        self.label = label_by_name
        if labelled and not self.label:
            self.ask("label", LABEL_NAMES)
        return "features", self.features()

    def take(self, use: str, found: tuple[str, str] | None) -> str | None:
        """The column for a use: named, as before, or found, with the reason noted."""
        if use in self.named:
            self.reasons.append(f"{use}: column {self.named[use]!r}, as you say.")
            return self.named[use]
        before = self.like.get(use)
        if before in self.table.columns and before not in self.taken:
            found = before, "as before"
        if found is None:
            return None
        name, why = found
        self.taken.add(name)
        self.reasons.append(f"{use}: column {name!r}, {why}.")
        return name

    def by_name(
        self, names: tuple[str, ...], fits: Callable[[str], bool] | None = None
    ) -> tuple[str, str] | None:
        """The first fitting column with such a name that was not an input before."""
        for name in names:
            column = self.plain.get(name)
            if column not in self.left() or column in self.inputs_before:
                continue
            if fits is None or fits(column):
                return column, "by its name"
        return None

    def says_parts(self, name: str) -> bool:
        """Whether a word names a part; one that does not is then an error, not a training row."""
        return any(part_of(word) for word in set(self.table.words(name)))

    def says_tasks(self, name: str) -> bool:
        """Whether the column names tasks, and is not a text about one."""
        return self.is_flat(name) and not _reads_like_prose(self.table, name)

    def label_by_name(self, labelled: bool) -> str | None:
        """The label, if a name says; data to predict need not have one."""
        guess = self.by_name(LABEL_NAMES, self.is_flat) if labelled or not self.like else None
        label = self.take("label", guess)
        if guess and label == guess[0] and (other := self.by_name(LABEL_NAMES, self.is_flat)):
            self.warnings.append(
                f"Column {other[0]!r} could be the label as well: if it is, say so with --label."
            )
        return label

    def is_flat(self, name: str) -> bool:
        """Whether the column has one value in a row."""
        return self.table.columns[name].ndim == 1

    def find_image(self) -> tuple[str, str] | None:
        """The column of images, if there is one."""
        if "image" in self.named and not self.may_be_image(self.named["image"]):
            raise ValueError(
                f"Column {self.named['image']!r} of {self.table.origin} holds numbers: --image "
                "needs paths of images, or pixels."
            )
        why, found = "which holds pixels", [name for name in self.left() if self.holds_pixels(name)]
        if not found:
            why = "whose words end like image files"
            found = [name for name in self.left() if self.holds_paths(name)]
        if len(found) > 1 and "image" not in self.named:
            raise ValueError(
                f"{self.table.origin} has images in columns {', '.join(map(repr, found))}: "
                "choose one with --image."
            )
        return (found[0], why) if found else None

    def may_be_image(self, name: str) -> bool:
        """Whether the column holds pixels, pictures or words."""
        return self.table.columns[name].dtype == object or not self.is_flat(name)

    def holds_pixels(self, name: str) -> bool:
        """Whether the column holds arrays of pixels or pictures of Pillow."""
        column = self.table.columns[name]
        if column.ndim > 1:
            return True
        return column.dtype == object and any(
            cell is not None and not isinstance(cell, str) for cell in column
        )

    def holds_words(self, name: str) -> bool:
        """Whether the column holds words, some of which are not numbers, or only empty ones."""
        if not self.table.is_words(name):
            return False
        numbers = self.table.numbers(name)
        return numbers is None or bool(np.isnan(numbers).all())

    def holds_paths(self, name: str) -> bool:
        """Whether all words end like image files."""
        if not self.table.is_words(name):
            return False
        known = (word for word in self.table.words(name) if not is_missing(word))
        return is_image_path(next(known, None)) and all(is_image_path(word) for word in known)

    def find_text(self) -> tuple[str, ...] | None:
        """The columns of texts, if there are any."""
        before = self.inputs_before if self.like.get("kind") == "texts" else None
        if "text" in self.named:
            self.check_words(self.named["text"])
            first: tuple[str, str] | None = (self.named["text"], "as you say")
        elif before and set(before) <= set(self.left()):
            self.reasons.append(f"text: {_columns(before)}, as before.")
            self.taken |= set(before)
            return tuple(before)
        elif self.like.get("kind") == "features":
            return None
        else:
            first = self.by_name((*TEXT_NAMES, *PAIRS), self.holds_words) or self.prose()
        if first is None:
            return None
        text, why = first
        self.taken.add(text)
        self.reasons.append(f"text: column {text!r}, {why}.")
        other = self.plain.get(PAIRS.get(_plain(text), ""))
        pair = (other, "by its name") if other in self.left() and self.holds_words(other) else None
        second = self.take("second", pair)
        if second:
            self.check_words(second)
        return (text, second) if second else (text,)

    def check_words(self, name: str) -> None:
        """Refuse a column of numbers as text."""
        if not self.table.is_words(name):
            raise ValueError(
                f"Column {name!r} of {self.table.origin} holds no words: --text needs words."
            )

    def prose(self) -> tuple[str, str] | None:
        """The only column that reads like prose."""
        found = [name for name in self.left() if _reads_like_prose(self.table, name)]
        if len(found) > 1:
            raise ValueError(
                f"{self.table.origin} has several columns of text, "
                f"{', '.join(map(repr, found))}: choose one with --text (and --second)."
            )
        return (found[0], "the only one that reads like prose") if found else None

    def only_column_left(self, labelled: bool) -> str | None:
        """The label where one column is left; otherwise it is asked for."""
        left = [name for name in self.left() if not self.is_identifier(name)]
        if len(left) == 1 and labelled and self.is_flat(left[0]):
            return self.take("label", (left[0], "the only one left"))
        if labelled:
            self.ask("label", LABEL_NAMES)
        return None

    def ask(self, use: str, names: tuple[str, ...]) -> None:
        """Raise the error that asks for a column."""
        raise ValueError(
            f"{self.table.origin} has no column called {', '.join(names[:-1])} or {names[-1]}: "
            f"say which is the {use} with --{use}; its columns are {self.listed()}."
        )

    def features(self) -> tuple[str, ...]:
        """Every column left that holds numbers or categories."""
        table, chosen = self.table, []
        for name in self.left():
            numbers = table.numbers(name)
            if self.is_identifier(name):
                self.reasons.append(f"Column {name!r} is left out: it numbers the rows.")
            elif numbers is not None and np.isinf(numbers).any():
                row = int(np.flatnonzero(np.isinf(numbers))[0]) + 1
                raise ValueError(
                    f"Row {row} of column {name!r} of {table.origin} is infinite: "
                    "leave the cell empty, or give a number."
                )
            elif numbers is not None and np.isnan(numbers).all():
                self.warnings.append(f"Column {name!r} is empty: it is left out.")
            elif numbers is not None or self.is_category(name):
                chosen.append(name)
        chosen = chosen or [name for name in self.inputs_before if name in table.columns]
        if not chosen:
            raise ValueError(
                f"{table.origin} has no column to learn from: name one with --text or --image; "
                f"its columns are {self.listed()}."
            )
        self.reasons.append(f"features: {_columns(chosen)}, all that are left.")
        return tuple(chosen)

    def is_category(self, name: str) -> bool:
        """Whether words are few enough to be categories; with a warning where that is doubtful."""
        known = [word for word in self.table.words(name) if not is_missing(word)]
        kinds = set(known)
        numbers = [word for word in kinds if word and _is_number(word)]
        odd = sorted(kinds - set(numbers), key=str)
        if len(numbers) > 4 * len(odd):
            self.warnings.append(
                f"Column {name!r} is read as categories, since {printable(odd[0])!r} is no number: "
                "leave such cells empty to have it read as numbers."
            )
        elif odd and all(_is_number(str(word).replace(",", ".", 1)) for word in odd):
            self.warnings.append(
                f"Column {name!r} has numbers with a comma, such as {odd[0]!r}: write a point."
            )
        few = len(kinds) <= MOST_CATEGORIES and (len(kinds) <= 10 or 2 * len(kinds) <= len(known))
        if not few:
            self.warnings.append(
                f"Column {name!r} has {len(kinds):,} different words and is left out: "
                "if it is text, name it with --text."
            )
        return few

    def is_identifier(self, name: str) -> bool:
        """Whether the column only numbers or names the rows."""
        plain = _plain(name)
        if plain not in ID_NAMES and not plain.endswith("_id"):
            return False
        words = self.table.words(name)
        return len(set(words)) == len(words)

    def ignore_the_rest(self) -> None:
        """Note which columns are not used."""
        if left := self.left():
            self.reasons.append(f"Not used: {_columns(left)}.")

    def left(self) -> list[str]:
        """The columns that have no use yet."""
        return [name for name in self.table.columns if name not in self.taken]

    def listed(self) -> str:
        """The columns as a sentence shows them."""
        names = list(self.table.columns)
        more = f" and {len(names) - 20} more" if len(names) > 20 else ""
        return ", ".join(map(repr, names[:20])) + more


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _columns(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:8]))
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"


def _is_number(word: str) -> bool:
    column = np.array([word], object)
    return Table({"word": column}, "").numbers("word") is not None


def _reads_like_prose(table: Table, name: str) -> bool:
    if not table.is_words(name):
        return False
    cells = table.columns[name][:_LOOKED_AT].tolist()
    known = [cell for cell in cells if not is_missing(cell)]
    long = sum(len(cell.split()) for cell in known) >= 3 * len(known) > 0
    return long and 2 * len(set(known)) >= len(known)
