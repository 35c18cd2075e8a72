"""The commands. Each is a module of this package with a function `command`."""

from __future__ import annotations

__all__ = ["COMMANDS"]

COMMANDS = {
    "learn": "Learn a task, in a new model or in one that has learned others.",
    "predict": "Answer every row: label, probability, task, certainty.",
    "show": "Show what a model has learned: tasks, accuracy then and now, room left.",
    "export": "Write one task as files that run without gateon.",
    "undo": "Go back to the model as it was before the last learn.",
    "run": "Train on a stream of tasks, one after another, and measure what is retained.",
    "resume": "Continue an unfinished run as if it had never stopped, or show a finished one.",
    "inspect": "Show what is in the directory of a run, and check that it is intact.",
    "compare": "Run several methods with several seeds, and compare them.",
    "report": "Write one page that shows runs, a comparison, a living model or a reproduced table.",
    "search": "Search for the best settings of a method, on validation data.",
    "reproduce": "Reproduce a table or figure of the paper, next to the paper's numbers.",
    "data": "List the data sets, download one, show where they are kept, or check your own.",
    "list": "List the streams, methods or presets, or the tables and figures of the paper.",
    "completion": "Print a script that completes gateon's commands and options on Tab.",
}
