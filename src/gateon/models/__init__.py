"""Networks of the paper, in any size."""

from .mlp import mlp

__all__ = ["mlp"]
