"""Principle 2, dynamic availability: relevance, the rule that moves A, and the updates A scales.

Imports `anatomy` and `gating`.
"""

from .firing_rate import FiringRate
from .rule import Rate, Rule, recovery_time, room, saturation, update

__all__ = ["FiringRate", "Rate", "Rule", "recovery_time", "room", "saturation", "update"]
