"""gateon learn."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import tyro

from ..life.lesson import Lesson
from ..life.model import changing
from ..storage.files import printable
from .hearing import Hearing
from .parse import JSON, Directory, gigabytes
from .printing import page_of

__all__ = ["command"]


def command(
    directory: Directory,
    data: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    task: str | None = None,
    text: str | None = None,
    second: str | None = None,
    label: str | None = None,
    image: str | None = None,
    split: str | None = None,
    epochs: int | None = None,
    model: str | None = None,
    density: float | None = None,
    seed: int | None = None,
    keep_nothing: bool = False,
    data_limit: float | None = None,
    as_json: JSON = False,
    quiet: bool = False,
) -> None:
    """Learn a task, in a new model or in one that has learned others.

    The data are a CSV, TSV, JSON lines, Parquet or npz file, a folder of images (CLASS/FILE), or a
    folder with train and test tables. If stopped at any moment, the directory still holds the model
    as it was. Training data are not stored.

    Args:
        directory: of the model; created if needed.
        data: the file or folder to learn.
        task: the task the data belong to, new or old. By default a column called task or domain
            says; without one the model decides, and says so.
        text: the column of texts.
        second: the column of second texts.
        label: the column of labels.
        image: the column of images.
        split: the column that says train, validation or test.
        epochs: the most passes over the rows, up to ten times as many where they are few; it ends
            early by the held-out share.
        model: for a new model, the language model that reads texts: minilm (default),
            mpnet-base, smollm2-135m, a directory, or a name on a hub.
        density: for a new model, the share of units that are open in each task.
        seed: for a new model, the seed of weights, gates, the order of rows and what is held out.
        keep_nothing: do not keep held-out rows either; the task is then measured only once.
        data_limit: gigabytes a file may take once unpacked; 1 by default.
        as_json: print the result as JSON.
        quiet: print only the result.
    """
    largest = gigabytes(data_limit)
    with Hearing(quiet) as heard, changing(directory, model, density, seed) as living:
        lessons = living.learn(
            data,
            task,
            text=text,
            second=second,
            label=label,
            image=image,
            split=split,
            epochs=epochs,
            keep=not keep_nothing,
            largest=largest,
            listener=heard,
        )
    page = page_of(directory, "current")
    if as_json:
        print(json.dumps([asdict(lesson) for lesson in lessons]))
        return
    for lesson in lessons:
        print(printable(_told(lesson)))
    if page is not None:
        print(printable(f"page: {page}"))


def _told(lesson: Lesson) -> str:
    """What came of a lesson, in one line."""
    added = f", {len(lesson.added)} of them new" if lesson.added and not lesson.new else ""
    accuracy = (
        "nothing was held out to measure it"
        if lesson.accuracy is None
        else f"accuracy {lesson.accuracy:.1%} on held-out rows"
    )
    others = [
        f"{name} {then:.1%} -> {now:.1%}"
        for name, (then, now) in lesson.others.items()
        if name != lesson.task and then is not None and now is not None
    ]
    kept = f"; kept: {', '.join(others)}" if others else ""
    return (
        f"{lesson.task}: {lesson.rows:,} rows, {lesson.labels} "
        f"{'label' if lesson.labels == 1 else 'labels'}{added}, {accuracy}, "
        f"{lesson.seconds:.0f} s{kept}"
    )
