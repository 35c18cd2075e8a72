"""The section [network] of a specification: one dataclass for every kind of network.

What a kind lacks is no field of it, and so no option of a run that chooses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from ..options.kinds import Count, Counts, Share
from . import pretrained
from .cnn import cnn
from .heads import TaskHeads, with_task_heads
from .mlp import mlp
from .text import text_classifier
from .wide_resnet import wide_resnet

__all__ = ["KINDS", "Cnn", "Language", "Mlp", "Network", "WideResNet"]

Heads = Literal["shared", "per-task"]
Norm = Literal["context", "batch", "none"]


@dataclass(frozen=True)
class Mlp:
    """A multi-layer perceptron.

    Args:
        hidden: units of each hidden layer.
        heads: one output layer shared by all tasks, or one per task.
        norm: statistics of the batch norms: per context, those of the current batch, or no norm.
        unit_length: scale hidden activity to unit length.
        input_dropout: dropout rate of the inputs.
        dropout: dropout rate of the hidden units.
    """

    kind: ClassVar = "mlp"
    hidden: Counts = (2000, 2000)
    heads: Heads = "shared"
    norm: Norm = "context"
    unit_length: bool = False
    input_dropout: Share = 0.0
    dropout: Share = 0.0

    def make(self, shape: Sequence[int], classes: int, tasks: int) -> nn.Module:
        """The network for inputs of a shape."""
        made = mlp(
            math.prod(shape),
            self.hidden,
            classes,
            norm=self.norm,
            unit_length=self.unit_length,
            input_dropout=self.input_dropout,
            dropout=self.dropout,
        )
        return made if self.heads == "shared" else with_task_heads(made, tasks)


@dataclass(frozen=True)
class Cnn:
    """Convolutions, then fully connected layers.

    Args:
        channels: number of channels of each convolution.
        hidden: units of each hidden layer after the convolutions.
        heads: one output layer shared by all tasks, or one per task.
        norm: statistics of the batch norms: per context, those of the current batch, or no norm.
    """

    kind: ClassVar = "cnn"
    channels: Counts = (256, 512)
    hidden: Counts = (2000, 2000)
    heads: Heads = "shared"
    norm: Norm = "context"

    def make(self, shape: Sequence[int], classes: int, tasks: int) -> nn.Module:
        """The network for images of a shape."""
        made = cnn(shape, self.channels, self.hidden, classes, norm=self.norm)
        return made if self.heads == "shared" else with_task_heads(made, tasks)


@dataclass(frozen=True)
class WideResNet:
    """A wide residual network.

    Args:
        depth: number of layers: 10, 16, 22, 28 ...
        widen: how many times wider than a ResNet.
        heads: one output layer shared by all tasks, or one per task.
        norm: statistics of the batch norms: per context, those of the current batch, or no norm.
    """

    kind: ClassVar = "wide-resnet"
    depth: Count = 16
    widen: Count = 2
    heads: Heads = "shared"
    norm: Norm = "context"

    def make(self, shape: Sequence[int], classes: int, tasks: int) -> nn.Module:
        """The network for images of a shape."""
        made = wide_resnet(self.depth, self.widen, classes, shape=shape, norm=self.norm)
        return made if self.heads == "shared" else with_task_heads(made, tasks)


@dataclass(frozen=True)
class Language:
    """A classifier on a pretrained language model.

    Args:
        model: minilm, mpnet-base, smollm2-135m, a directory, or a name on a hub.
        pooling: how a text is summarised: by the mean of its tokens, or by the first one.
        heads: one output layer shared by all tasks, or one per task.
    """

    kind: ClassVar = "language"
    model: str = "minilm"
    pooling: Literal["mean", "first"] = "mean"
    heads: Heads = "shared"

    @staticmethod
    def usual_pooling(model: str) -> Literal["mean", "first"]:
        """How a model was trained to sum up a text.

        Those fetched by name by the mean, others by the first token.

        >>> Language.usual_pooling("bert-base-uncased")
        'first'
        """
        return "mean" if model in (*pretrained.PUBLISHED, "tiny") else "first"

    def make(self, shape: Sequence[int], classes: int, tasks: int) -> nn.Module:
        """The network for texts of the model's tokens."""
        made = text_classifier(self.model, classes, pooling=self.pooling)
        if self.heads == "per-task":
            made.head = TaskHeads(made.head.in_features, classes, tasks)
        return made


Network = Mlp | Cnn | WideResNet | Language
KINDS: dict[str, type[Network]] = {one.kind: one for one in (Mlp, Cnn, WideResNet, Language)}
