"""What a network is made of: kinds of layers and their units, norms, wiring, and sites for gates.

Nothing here depends on gates, methods or training. Imports no other room.
"""

from . import layers  # registers the kinds of torch's layers

__all__ = ["layers"]
