"""What the tests of workers share: a small run, what its record must say, a board that remembers."""

from __future__ import annotations

import json
from dataclasses import asdict

from specified import specified


def of_two_tasks(**options):
    tiny = {"data": "mnist-5k", "tasks": 2, "steps": 10, "batch": 50, "hidden": (16,)}
    return specified("permuted-mnist", **{**tiny, **options})


def found(record):
    """All that must be the same wherever a run was made."""
    content = {k: v for k, v in asdict(record).items() if k not in ("seconds", "environment")}
    return json.dumps(content)


class Heard:
    """A board that remembers, and does something when a task was learned."""

    def __init__(self, at_task=lambda name, task: None):
        self.ends, self.notes, self.places, self.at_task = [], [], {}, at_task

    def open(self, pieces):
        self.pieces = pieces

    def told(self, name, event, told):
        if event == "begin":
            self.places.setdefault(name, []).append(told[2])
        if event == "task":
            self.at_task(name, told[0])

    def ended(self, name, how):
        self.ends.append((name, how))

    def note(self, text):
        self.notes.append(text)

    def close(self):
        pass
