"""Continual learning without replay: context gates and availability-scaled updates for any PyTorch network.

Names are imported when they are first used, so that the program can answer `--help` before torch is
loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import availability, streams
    from . import networks as models
    from .anatomy.norm import ContextNorm, context_norms
    from .availability import relevance
    from .availability.obstruct import Obstruction, obstruct
    from .detection.detector import ContextDetector, Verdict
    from .gating.attach import attach
    from .gating.gate import Gate
    from .gating.gates import Gates, gates_of
    from .learners.learner import Learner, Observation
    from .methods import Finetune, GateON, Method, gating_only, obstruction_only, preset
    from .runs import metrics
    from .runs.record import Record
    from .runs.run import run
    from .subnetwork.compact import compact
    from .subnetwork.inherit import inherit

__all__ = [
    "ContextDetector",
    "ContextNorm",
    "Finetune",
    "Gate",
    "GateON",
    "Gates",
    "Learner",
    "Method",
    "Observation",
    "Obstruction",
    "Record",
    "Verdict",
    "attach",
    "availability",
    "compact",
    "context_norms",
    "gates_of",
    "gating_only",
    "inherit",
    "metrics",
    "models",
    "obstruct",
    "obstruction_only",
    "preset",
    "relevance",
    "run",
    "streams",
]

# Where each name comes from; a module of its own has none behind it.
HOMES = {
    "anatomy.norm": ("ContextNorm", "context_norms"),
    "availability.obstruct": ("Obstruction", "obstruct"),
    "detection.detector": ("ContextDetector", "Verdict"),
    "gating.attach": ("attach",),
    "gating.gate": ("Gate",),
    "gating.gates": ("Gates", "gates_of"),
    "learners.learner": ("Learner", "Observation"),
    "methods": ("Finetune", "GateON", "Method", "gating_only", "obstruction_only", "preset"),
    "runs.record": ("Record",),
    "runs.run": ("run",),
    "subnetwork.compact": ("compact",),
    "subnetwork.inherit": ("inherit",),
}
MODULES = {
    "availability": "availability",
    "hf": "hf",
    "metrics": "runs.metrics",
    "models": "networks",
    "relevance": "availability.relevance",
    "streams": "streams",
}
WHERE = {name: home for home, names in HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name in MODULES:
        found: Any = import_module(f"{__name__}.{MODULES[name]}")
    elif name in WHERE:
        found = getattr(import_module(f"{__name__}.{WHERE[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """What there is, imported or not."""
    return sorted({*globals(), *__all__})
