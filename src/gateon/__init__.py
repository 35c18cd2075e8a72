"""Continual learning without replay: context gates and availability-scaled updates for any PyTorch network."""

from . import availability, metrics, models, relevance, streams
from .compact import compact
from .detector import ContextDetector, Verdict
from .gate import Gate
from .gates import Gates, attach, gates_of
from .inherit import inherit
from .learner import Learner, Observation
from .methods import Finetune, GateON, Method, gating_only, obstruction_only, preset
from .norm import ContextNorm, context_norms
from .obstruct import Obstruction, obstruct
from .record import Record
from .run import run

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
