"""Principle 2, dynamic availability: relevance, the rule that moves A by it, and the updates that A scales.

Imports `anatomy` and `gating`.
"""

from .rule import Rate, Rule, recovery_time, room, saturation, update

__all__ = ["Rate", "Rule", "recovery_time", "room", "saturation", "update"]
