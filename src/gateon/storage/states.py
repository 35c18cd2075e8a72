"""Whether a state fits the object it is loaded into: all templates under one name.

Every tensor and value is compared with a template before anything is loaded; `templates` explains
what a template is.
"""

from .model_states import Grown, Inputs, availabilities_like, batch_like, contexts_like, grown
from .optimizer_states import load_optimizer, optimizer_like, schedule_like
from .templates import (
    ANYTHING,
    COUNT,
    FLAG,
    GENERATOR,
    NUMBER,
    Partly,
    Rule,
    Whole,
    check,
    check_fits,
    indices_like,
    values_like,
)

__all__ = [
    "ANYTHING",
    "COUNT",
    "FLAG",
    "GENERATOR",
    "NUMBER",
    "Grown",
    "Inputs",
    "Partly",
    "Rule",
    "Whole",
    "availabilities_like",
    "batch_like",
    "check",
    "check_fits",
    "contexts_like",
    "grown",
    "indices_like",
    "load_optimizer",
    "optimizer_like",
    "schedule_like",
    "values_like",
]
