"""One lesson: rows of one task are learned, and every task is measured again."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..detection.recogniser import Recogniser
from ..storage.files import printable
from ..streams.draw import permutation
from .asking import believed, logits_of, scores_of
from .front import Front
from .holdout import divided, held_out_words
from .knowledge import Held, Knowledge, bounded
from .measuring import measure, unmeasured
from .network import TaskNetwork
from .settings import Settings
from .table import Table
from .task import Part, Task
from .telling import Listener
from .training import train
from .understand import Understanding
from .whose import Verdict, Witness, judge

__all__ = ["Lesson", "Samples", "begun", "samples_of", "teach", "whose"]

MOST_HELD = 1000  # samples of a task that are kept to measure on
LARGEST_HELD = 1 << 24  # their bytes
LOOKED_AT = 500  # samples that decide whose they are
COVERED = 0.5  # share of a context's labels that a lesson must have to go on in it

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Lesson:
    """The result of one lesson.

    Args:
        task: its name.
        new: whether the task is new.
        rows: learned.
        labels: of the task by now.
        added: labels that are new to it.
        accuracy: on held-out rows; None if there are none.
        epochs: passes over the rows.
        steps: batches.
        seconds: it took.
        decided: how the task was found if it was not named; else empty.
        others: accuracy of every task then and now.
    """

    task: str
    new: bool
    rows: int
    labels: int
    added: tuple[str, ...]
    accuracy: float | None
    epochs: int
    steps: int
    seconds: float
    decided: str
    others: dict[str, tuple[float | None, float | None]]


@dataclass(frozen=True, eq=False)
class Samples:
    """The rows of one task as samples, and their labels by name.

    Args:
        x: samples to learn.
        labels: their labels.
        held: samples for early stopping and, without a test part, for measuring.
        held_labels: theirs.
        test: samples to measure on only.
        test_labels: theirs.
    """

    x: Tensor
    labels: list[str]
    held: Tensor
    held_labels: list[str]
    test: Tensor
    test_labels: list[str]


def begun(table: Table, found: Understanding, settings: Settings, listener: Listener) -> Knowledge:
    """A model that has learned nothing, for data like these."""
    front = Front.fit(table, found, found.parts["train"], settings)
    front.fetching = lambda what, done, total: listener.progress(f"fetching {what}", done, total)
    width = front.recognised_by(torch.zeros(1, *front.shape)).shape[1]
    columns = {use: name for use, name in found.columns.items() if use not in ("split", "task")}
    return Knowledge(
        found.kind,
        columns,
        settings,
        front,
        TaskNetwork(front.shape, settings, 1),
        Recogniser(width, settings.features, seed=settings.seed),
    )


def samples_of(
    knowledge: Knowledge, table: Table, found: Understanding, task: str | None, listener: Listener
) -> Samples:
    """The rows of one task in the data, or of all, as samples; some are held out."""
    parts = divided(found, task, seed=knowledge.settings.seed)
    if len(parts["train"]) < 2:
        raise ValueError(
            f"{table.origin} has {len(parts['train'])} row to learn: give at least 2, better 50."
        )
    if "validation" not in found.parts:
        names = found.names[np.concatenate([parts["train"], parts["validation"]])]
        rows = len(parts["train"])
        drawn = {"train": np.arange(rows), "validation": np.arange(rows, len(names))}
        listener.say(held_out_words(names, drawn))
    said: dict[str, None] = {}

    def samples(part: str) -> tuple[Tensor, list[str]]:
        rows = parts.get(part, np.zeros(0, np.int64))
        if part != "train":  # a label that cannot be learned cannot be measured
            rows = np.array([r for r in rows if found.names[r] in learnable], np.int64)
        x, words = knowledge.front.encode(
            table,
            found.inputs,
            rows,
            lambda done, total: listener.progress(f"reading {part} rows", done, total),
        )
        said.update(dict.fromkeys(words))
        return x, [str(name) for name in found.names[rows]]

    learnable = set(found.names[parts["train"]])
    made = Samples(*samples("train"), *samples("validation"), *samples("test"))
    for words in said:
        listener.say(words)
    return made


def whose(knowledge: Knowledge, samples: Samples) -> Verdict:
    """Whether the rows continue an old task, and how sure that is."""
    if not knowledge.tasks:
        return judge([])
    chosen = torch.from_numpy(permutation(len(samples.x), 0, "whose")[:LOOKED_AT])
    x, labels = samples.x[chosen], [samples.labels[n] for n in chosen.tolist()]
    closest = believed(knowledge, x).tasks.argmax(1)
    known = knowledge.recogniser.known(scores_of(knowledge, x))
    witnesses = []
    for number, task in enumerate(knowledge.tasks):
        has = torch.tensor([label in task.labels for label in labels])
        losses = believed(knowledge, x, task).losses(labels)[has]
        witnesses.append(
            Witness(
                task.name,
                alike=((closest == number) & known).double().mean().item(),
                labelled=has.double().mean().item(),
                loss=losses.mean().item() if len(losses) else math.inf,
                usual=_usual(task),
                labels=len(task.labels),
            )
        )
    return judge(witnesses)


def _usual(task: Task) -> float:
    """The loss of the task's held-out rows; a tenth of a guess where none were held out."""
    return math.log(max(len(task.labels), 2)) / 10 if task.loss is None else task.loss


def teach(
    knowledge: Knowledge,
    name: str,
    samples: Samples,
    decided: str,
    keep: bool,
    listener: Listener,
) -> Lesson:
    """Learn samples as a task, and measure all tasks again.

    Args:
        knowledge: learns.
        name: of the task, a new or an old one.
        samples: of it.
        decided: how the task was found if it was not named.
        keep: whether samples are kept to measure on.
        listener: receives messages and progress.
    """
    begin, now = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    old = knowledge.task(name)
    task = old or Task(name, begun=now)
    before, part = _part(knowledge, task, set(samples.labels))
    known = task.parts if before in task.parts else (*task.parts, part)
    knowledge.network = knowledge.network.grown(max(knowledge.outputs, 1 + max(part.rows)))
    numbers = {label: number for number, label in enumerate(part.labels)}
    y = torch.tensor([numbers[label] for label in samples.labels])
    held_y = torch.tensor([numbers[label] for label in samples.held_labels], dtype=torch.int64)
    course = train(
        knowledge.network,
        part.context,
        part.rows,
        samples.x,
        y,
        (samples.held, held_y),
        len(before.labels),
        (name, task.lessons),
        lambda epoch, epochs, loss: listener.progress(
            f"learning {printable(name)}: loss {loss:.3f}", epoch, epochs
        ),
    )
    knowledge.recogniser.add(
        knowledge.front.recognised_by(samples.x),
        torch.tensor(part.rows)[y],
        part.context,
    )
    learned = replace(
        task,
        parts=tuple(part if one.context == part.context else one for one in known),
        samples=task.samples + len(samples.x),
        lessons=task.lessons + 1,
        learned=now,
        then=None,
        loss=None,
    )
    knowledge.put(learned)
    _hold(knowledge, learned, part, samples)
    _calibrate(knowledge)
    measure(knowledge, name)
    if not keep:
        knowledge.held.pop(name, None)
        unmeasured(knowledge)
    measured = knowledge.task(name)
    assert measured is not None
    return Lesson(
        name,
        old is None,
        len(samples.x),
        len(learned.labels),
        tuple(sorted(set(samples.labels) - set(task.labels))),
        measured.then,
        course.epochs,
        course.steps,
        time.monotonic() - begin,
        decided,
        {task.name: (task.then, task.now) for task in knowledge.tasks},
    )


def _part(knowledge: Knowledge, task: Task, labels: set[str]) -> tuple[Part, Part]:
    """The context in which labels of a task are learned, without and with those new to it.

    It is the one with the largest share of its labels present; a new one if that is under half.
    """
    best = max(task.parts, key=lambda part: part.coverage(labels), default=None)
    if best is None or best.coverage(labels) < COVERED:
        best = Part(len(knowledge.parts))
    added, first = sorted(labels - set(best.labels)), knowledge.outputs
    rows = range(first, first + len(added))
    return best, Part(best.context, (*best.labels, *added), (*best.rows, *rows))


def _hold(knowledge: Knowledge, task: Task, part: Part, samples: Samples) -> None:
    """Keep the samples to measure on: the test part, or what was held out, with earlier ones."""
    x, labels = (
        (samples.test, samples.test_labels)
        if len(samples.test)
        else (samples.held, samples.held_labels)
    )
    if not len(x):
        return
    rows = dict(zip(part.labels, part.rows, strict=True))
    row = torch.tensor([rows[label] for label in labels])
    before = knowledge.held.get(task.name)
    if before is not None:
        x, row = torch.cat([before.x.float(), x]), torch.cat([before.row, row])
    order = torch.from_numpy(permutation(len(x), knowledge.settings.seed, "held", task.lessons))
    knowledge.held[task.name] = bounded(Held(x, row), MOST_HELD, LARGEST_HELD, order)


def _calibrate(knowledge: Knowledge) -> None:
    """Calibrate recogniser and network against each other on all held-out samples."""
    held = list(knowledge.held.values())
    if not held:
        return
    x, row = torch.cat([one.x.float() for one in held]), torch.cat([one.row for one in held])
    own = torch.stack([torch.isin(row, torch.tensor(part.rows)) for part in knowledge.parts], 1)
    knowledge.recogniser.calibrate(
        knowledge.front.recognised_by(x), row, logits_of(knowledge, x, own)
    )
