"""Methods of continual learning, one file each."""

from .base import Adopt, Method
from .finetune import Finetune
from .gateon import GateON, gating_only, obstruction_only, preset

__all__ = ["Adopt", "Finetune", "GateON", "Method", "gating_only", "obstruction_only", "preset"]
