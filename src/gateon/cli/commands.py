"""The commands. Each is a module of this package with a function `command`."""

from __future__ import annotations

__all__ = ["COMMANDS", "EXAMPLES", "GROUPS"]

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

GROUPS = {
    "A model that lives": ("learn", "predict", "show", "export", "undo"),
    "Experiments": ("run", "compare", "search", "reproduce"),
    "Their results": ("report", "inspect", "resume"),
    "What there is": ("list", "data", "completion"),
}

# Shown in the help of each command; a test runs them one after the other in one directory.
EXAMPLES = {
    "learn": ("gateon learn flowers/ spring.csv --task meadow --label species",),
    "predict": ("gateon predict flowers/ new.csv --out answers.csv",),
    "show": ("gateon show flowers/",),
    "export": ("gateon export flowers/ --task meadow --format torch",),
    "undo": ("gateon undo flowers/",),
    "run": (
        "gateon run permuted-mnist --method p-gateon --tasks 10",
        "gateon run split-mnist --contexts inferred --track tensorboard",
        "gateon run split-mnist --save-spec split.toml",
        "gateon run split.toml --method ewc --method.strength 100",
    ),
    "compare": (
        "gateon compare permuted-mnist --tasks 5 --methods n-gateon,finetune",
        "gateon compare rotated-mnist --methods p-gateon,ewc,si --seeds 3 --isolated",
    ),
    "search": ("gateon search permuted-mnist --method p-gateon --over method.rate=0.001..0.3:log",),
    "resume": ("gateon resume runs/permuted-mnist-p-gateon-0",),
    "inspect": ("gateon inspect runs/permuted-mnist-p-gateon-0",),
    "report": ("gateon report runs/permuted-mnist-p-gateon-0 --out page.html",),
    "reproduce": ("gateon reproduce table-1 --scale quick --plan",),
    "data": ("gateon data list", "gateon data check spring.csv --label species"),
    "list": ("gateon list methods",),
    "completion": ("gateon completion bash",),
}
