"""The networks of the paper, in any size, and where pretrained language models are found.

Imports `anatomy` and `storage`.
"""

from .cnn import cnn
from .mlp import mlp
from .text import TextClassifier, text_classifier
from .wide_resnet import wide_resnet

__all__ = ["TextClassifier", "cnn", "mlp", "text_classifier", "wide_resnet"]
