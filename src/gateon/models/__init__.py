"""Networks of the paper, in any size."""

from .cnn import cnn
from .mlp import mlp
from .wide_resnet import wide_resnet

__all__ = ["cnn", "mlp", "wide_resnet"]
