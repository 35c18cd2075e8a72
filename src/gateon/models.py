"""The networks under their earlier name: see `gateon.networks`."""

from .networks import TextClassifier, cnn, mlp, text_classifier, wide_resnet

__all__ = ["TextClassifier", "cnn", "mlp", "text_classifier", "wide_resnet"]
