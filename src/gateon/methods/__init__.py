"""Continual-learning methods, one file each, and their registry.

Imports the rooms of the mechanism, `storage` and `detection`. Names are imported when first used,
so the registry can be read without torch.
"""

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .base import Adopt, Method
    from .finetune import Finetune
    from .gateon import GateON, gating_only, obstruction_only, preset

__all__ = ["Adopt", "Finetune", "GateON", "Method", "gating_only", "obstruction_only", "preset"]

NAMES = {
    "base": ("Adopt", "Method"),
    "finetune": ("Finetune",),
    "gateon": ("GateON", "gating_only", "obstruction_only", "preset"),
}
__getattr__ = lazily(__name__, NAMES)
