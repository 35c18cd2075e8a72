"""A model that lives: it learns a task today, another tomorrow, and is used in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..runs.answering import LoadedRun
from ..runs.answers import Answers
from ..runs.folder import checkpoints
from ..runs.load import load_run
from .asking import answers_for
from .card import card, tasks_html
from .export import Format, export, known_task
from .knowledge import Knowledge
from .lesson import Lesson, begun, samples_of, teach, whose
from .network import copied
from .read import read
from .settings import DEFAULTS, settings_for
from .store import Store
from .table import Table
from .task import Task
from .telling import Listener, Silent
from .understand import Understanding, understand

__all__ = ["LivingModel", "about", "changing", "load", "opened"]


class LivingModel:
    """A model that learns task after task, answers in between, and keeps what it learned.

    Begin one with `LivingModel()`; `gateon.load(path)` opens one that was saved. What is learned
    stays in memory until `save` makes it the current version in a directory, atomically.

    Args:
        model: the language model that reads texts: minilm, mpnet-base, smollm2-135m, a directory,
            or a name on a hub.
        density: share of the network's units that are open in each task.
        seed: of weights, gates, the order of rows and what is held out.

    >>> rows = [[n, n % 7] for n in range(60)]
    >>> model = LivingModel()
    >>> _ = model.learn((rows, ["low" if n < 30 else "high" for n in range(60)]), task="height")
    >>> model.predict([[3, 3], [55, 6]]).labels
    ['low', 'high']
    """

    def __init__(
        self, model: str | None = None, density: float | None = None, seed: int | None = None
    ) -> None:
        self._wishes = {"model": model, "density": density, "seed": seed}
        self._knowledge: Knowledge | None = None
        self._folder: Path | None = None
        self._version: int | None = None
        self._unsaved: list[dict[str, Any]] = []

    def __repr__(self) -> str:
        """The tasks and where the model is kept."""
        names = ", ".join(repr(task.name) for task in self.tasks)
        kept = f", {str(self._folder)!r}" if self._folder else ""
        return f"<LivingModel of {len(self.tasks)} tasks ({names}){kept}>"

    def _repr_html_(self) -> str:
        room = {} if self._knowledge is None else self._knowledge.network.room()
        return tasks_html(self.tasks, room, "" if self._folder is None else str(self._folder))

    @property
    def tasks(self) -> list[Task]:
        """The tasks, in the order in which they were learned first."""
        return [] if self._knowledge is None else list(self._knowledge.tasks)

    def learn(
        self,
        source: Any,
        task: str | None = None,
        *,
        text: str | None = None,
        second: str | None = None,
        label: str | None = None,
        image: str | None = None,
        split: str | None = None,
        epochs: int | None = None,
        keep: bool = True,
        largest: int | None = None,
        listener: Listener | None = None,
    ) -> list[Lesson]:
        """Learn the rows of a source. Nothing changes if it fails.

        Args:
            source: a path, a frame, a list, arrays, a data set: see docs/data.md.
            task: the task of the rows. By default a column called task says; without one the model
                decides whether they continue an old task or begin a new one.
            text: the column of texts.
            second: the column of second texts.
            label: the column of labels.
            image: the column of images.
            split: the column that says train, validation or test.
            epochs: the most passes over the rows, up to ten times as many where they are few.
            keep: whether the held-out rows are kept, to measure on later.
            largest: bytes a file may take once unpacked; None for a gigabyte.
            listener: receives messages and progress.

        Returns:
            The result for each task.
        """
        heard = listener or Silent()
        table = read(source, largest)
        like = None if self._knowledge is None else self._knowledge.columns
        found = understand(table, text, second, label, image, split, like=like)
        for words in found.warnings:
            heard.say(words)
        with self._whole():
            knowledge = self._ready(table, found, epochs, heard)
            groups = (
                {None: task} if task is not None or not found.tasks else dict.fromkeys(found.tasks)
            )
            lessons = []
            for group, told in groups.items():
                samples = samples_of(knowledge, table, found, group, heard)
                named = group if told is None else told
                name, decided = None if named is None else _checked(named), ""
                if name is None:
                    verdict = whose(knowledge, samples)
                    name, decided = verdict.task, verdict.words
                    heard.say(f"{decided} (certainty {verdict.certainty:.0%})")
                if name is None:
                    name = _checked(heard.name(f"task-{len(knowledge.tasks) + 1}"))
                heard.say(f"Task {name!r} {'goes on' if knowledge.task(name) else 'is new'}.")
                lesson = teach(knowledge, name, samples, decided, keep, heard)
                self._unsaved.append(_event(lesson, table, knowledge))
                lessons.append(lesson)
            return lessons

    def predict(
        self,
        source: Any,
        task: str | None = None,
        *,
        text: str | None = None,
        second: str | None = None,
        image: str | None = None,
        largest: int | None = None,
        listener: Listener | None = None,
    ) -> Answers:
        """Labels, tasks and how sure they are, for every row of a source.

        Args:
            source: as `learn` takes it; labels are not looked at.
            task: the task of all rows; by default each row's is recognised.
            text: the column of texts.
            second: the column of second texts.
            image: the column of images.
            largest: bytes a file may take once unpacked; None for a gigabyte.
            listener: receives messages and progress.
        """
        heard, knowledge = listener or Silent(), self._learned()
        told = None
        if task is not None and (told := knowledge.task(task)) is None:
            names = ", ".join(repr(known.name) for known in knowledge.tasks)
            raise ValueError(f"There is no task {task!r}: choose one of {names}, or none.")
        table = read(source, largest)
        found = understand(table, text, second, None, image, labelled=False, like=knowledge.columns)
        x, said = knowledge.front.encode(
            table,
            found.inputs,
            told=lambda done, total: heard.progress("reading rows", done, total),
        )
        for words in (*found.warnings, *said):
            heard.say(words)
        return answers_for(knowledge, x, told)

    def save(self, path: str | Path | None = None) -> None:
        """Save what was learned as the current version in a directory.

        Args:
            path: the directory; by default the one it was loaded from.
        """
        folder = self._folder if path is None else Path(path).expanduser()
        if folder is None:
            raise ValueError("This model has no directory yet: say where, model.save(path).")
        with _store(folder).changing():
            self._commit(folder)

    def undo(self) -> tuple[int, int]:
        """Go back to the version before the last `save`; return both version numbers."""
        if self._folder is None:
            raise ValueError("This model was never saved: there is nothing to go back to.")
        store = _store(self._folder)
        if not store.exists:
            store.current()  # says so
        with store.changing():
            versions = store.undo({"when": _now(), "what": "undo"})
            self._open(self._folder)
        return versions

    def export(
        self, task: str | None = None, format: Format = "torch", out: str | Path | None = None
    ) -> Path:
        """Write a task as files that run without gateon; return their directory.

        Args:
            task: which one; the only one by default.
            format: torch (a program of torch.export), onnx, or hf (transformers, texts only).
            out: the directory to write; by default beside the model's, with task and format.
        """
        knowledge = self._learned()
        if out is None and self._folder is None:
            raise ValueError("This model has no directory yet: say where with out.")
        found = known_task(knowledge, task)
        plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in found.name)
        folder = Path(f"{self._folder}-{plain}-{format}") if out is None else Path(out)
        return export(knowledge, found, format, folder.expanduser())

    def history(self) -> list[dict[str, Any]]:
        """What happened to the directory of the model, the oldest first."""
        return [] if self._folder is None else _store(self._folder).history()

    def about(self) -> dict[str, Any]:
        """What is known of the model without its tensors, as JSON."""
        return self._learned().about()

    def _ready(
        self, table: Table, found: Understanding, epochs: int | None, heard: Listener
    ) -> Knowledge:
        """What is known, or the beginning of it; with the epochs of this lesson."""
        if self._knowledge is None:
            settings = settings_for(found.kind, epochs=None, **self._wishes)  # type: ignore[arg-type]
            self._knowledge = begun(table, found, settings, heard)
        knowledge = self._knowledge
        passes = DEFAULTS[found.kind].epochs if epochs is None else epochs
        knowledge.settings = replace(knowledge.settings, epochs=passes)
        knowledge.network.settings = knowledge.settings
        return knowledge

    def _learned(self) -> Knowledge:
        if self._knowledge is None or not self._knowledge.tasks:
            raise ValueError("This model has learned nothing yet: call learn first.")
        return self._knowledge

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Whatever is learned inside is learned completely, or not at all."""
        before = None if self._knowledge is None else copied(self._knowledge.state())
        events = list(self._unsaved)
        try:
            yield
        except BaseException:
            self._knowledge = None if before is None else Knowledge.from_state(before)
            self._unsaved = events
            raise

    def _commit(self, folder: Path) -> None:
        """Write a version, with the directory locked."""
        store, knowledge = _store(folder), self._learned()
        if store.exists and (folder != self._folder or store.current() != self._version):
            raise ValueError(
                f"{folder} holds another version than the one this model came from: load it again, "
                "or save to another directory."
            )
        event = {"when": _now(), "what": "learn", "lessons": self._unsaved}
        self._version = store.commit(knowledge.state(), event)
        self._folder, self._unsaved = folder, []

    def _open(self, folder: Path) -> None:
        state = _store(folder).load()
        self._knowledge = Knowledge.from_state(state)
        self._folder, self._version = folder, int(state["about"]["version"])
        self._unsaved = []


def load(path: str | Path) -> LivingModel | LoadedRun:
    """Open what is in a directory: a living model, or what a run has learned.

    Args:
        path: the directory that `gateon learn`, `LivingModel.save` or `gateon run` left.
    """
    folder = Path(path).expanduser()
    return load_run(folder) if _holds_run(folder) else opened(folder)


def opened(folder: Path) -> LivingModel:
    """The living model in a directory."""
    model = LivingModel()
    model._open(folder)
    return model


@contextmanager
def changing(
    folder: Path, model: str | None = None, density: float | None = None, seed: int | None = None
) -> Iterator[LivingModel]:
    """The model in a directory, or a new one; it is saved if nothing inside fails.

    The directory is locked meanwhile, so that no other process changes it.
    """
    store = _store(folder)
    with store.changing(), _gone_if_empty(store):
        made = LivingModel(model, density, seed)
        if store.exists:
            if given := [n for n, value in made._wishes.items() if value is not None]:
                raise ValueError(
                    f"--{given[0]} is chosen when a model begins, and {folder} has begun: leave it "
                    "out, or begin another model."
                )
            made._open(folder)
        yield made
        made._commit(folder)


@contextmanager
def _gone_if_empty(store: Store) -> Iterator[None]:
    """Remove the directory again if nothing was written into it."""
    try:
        yield
    finally:
        if not store.exists:
            with suppress(OSError):  # it has something else in it
                (store.folder / "versions").rmdir()
                (store.folder / ".lock").unlink()
                store.folder.rmdir()


def about(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What is known of the model in a directory without its tensors, and its history."""
    store = _store(folder)
    return store.about(), store.history()


def _store(folder: Path) -> Store:
    if _holds_run(folder):
        raise ValueError(
            f"{folder} holds a run, not a living model: look at it with gateon inspect, use it with "
            "gateon.load in Python, or choose another directory."
        )
    return Store(folder, card)


def _holds_run(folder: Path) -> bool:
    """Whether the directory is one that `gateon run` left."""
    if not folder.is_dir() or Store(folder, card).exists:
        return False
    return (folder / "record.json").exists() or bool(checkpoints(folder))


def _checked(name: str | None) -> str:
    found = name.strip() if isinstance(name, str) else ""
    if not found or not found.isprintable() or len(found) > 200:
        raise ValueError(f"A task needs a name of 1 to 200 printable characters, got {name!r}.")
    return found


def _event(lesson: Lesson, table: Table, knowledge: Knowledge) -> dict[str, Any]:
    """A line of the history."""
    return {
        "task": lesson.task,
        "new": lesson.new,
        "source": table.origin,
        "sha256": table.sha256,
        "rows": lesson.rows,
        "labels": lesson.labels,
        "added": list(lesson.added),
        "decided": lesson.decided,
        "epochs": lesson.epochs,
        "steps": lesson.steps,
        "seconds": round(lesson.seconds, 1),
        "accuracy": lesson.accuracy,
        "now": {name: now for name, (_, now) in lesson.others.items()},
        "untold": {task.name: task.untold for task in knowledge.tasks},
        "room": knowledge.network.room(),
        "settings": knowledge.settings.state(),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
