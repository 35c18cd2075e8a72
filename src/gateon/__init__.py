"""Continual learning without replay: context gates and availability-scaled updates.

Works with any PyTorch network. Names are imported when they are first used, so that the program
can answer `--help` without loading torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazily

if TYPE_CHECKING:
    from . import availability, streams
    from . import networks as models
    from .anatomy.converting import context_norms
    from .anatomy.norm import ContextNorm
    from .availability import relevance
    from .availability.obstruct import Obstruction, obstruct
    from .detection.detector import ContextDetector, Verdict
    from .gating.attach import attach
    from .gating.gate import Gate
    from .gating.gates import Gates, gates_of
    from .learners.learner import Learner, Observation
    from .life.model import LivingModel, load
    from .methods import Finetune, GateON, Method, gating_only, obstruction_only, preset
    from .parallel.processes import Processes, together
    from .report.progress import progress
    from .runs import metrics
    from .runs.record import Record
    from .runs.run import run
    from .subnetwork.compact import compact
    from .subnetwork.inherit import inherit
    from .tracing.own_loop import trace
    from .tracing.trace import Trace

__all__ = [
    "ContextDetector",
    "ContextNorm",
    "Finetune",
    "Gate",
    "GateON",
    "Gates",
    "Learner",
    "LivingModel",
    "Method",
    "Observation",
    "Obstruction",
    "Processes",
    "Record",
    "Trace",
    "Verdict",
    "attach",
    "availability",
    "compact",
    "context_norms",
    "gates_of",
    "gating_only",
    "inherit",
    "load",
    "metrics",
    "models",
    "obstruct",
    "obstruction_only",
    "preset",
    "progress",
    "relevance",
    "run",
    "streams",
    "together",
    "trace",
]

# The module that provides each name, and the names that stand for a whole module.
NAMES = {
    "anatomy.converting": ("context_norms",),
    "anatomy.norm": ("ContextNorm",),
    "availability.obstruct": ("Obstruction", "obstruct"),
    "detection.detector": ("ContextDetector", "Verdict"),
    "gating.attach": ("attach",),
    "gating.gate": ("Gate",),
    "gating.gates": ("Gates", "gates_of"),
    "learners.learner": ("Learner", "Observation"),
    "life.model": ("LivingModel", "load"),
    "methods": ("Finetune", "GateON", "Method", "gating_only", "obstruction_only", "preset"),
    "parallel.processes": ("Processes", "together"),
    "report.progress": ("progress",),
    "runs.record": ("Record",),
    "runs.run": ("run",),
    "subnetwork.compact": ("compact",),
    "subnetwork.inherit": ("inherit",),
    "tracing.own_loop": ("trace",),
    "tracing.trace": ("Trace",),
}
MODULES = {
    "availability": "availability",
    "hf": "hf",
    "metrics": "runs.metrics",
    "models": "networks",
    "relevance": "availability.relevance",
    "streams": "streams",
}
__getattr__ = lazily(__name__, NAMES, MODULES)


def __dir__() -> list[str]:
    """All public names, imported or not."""
    return sorted({*globals(), *__all__})
