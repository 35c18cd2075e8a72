"""A task of texts as a model of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from .plain import Answer, TextTask, perceptron

__all__ = ["TaskConfig", "TaskModel"]


class TaskConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """The sizes of a task's model.

    Args:
        encoder: the configuration of its language model.
        layers: how many of its last layers are read.
        inputs: numbers that a text becomes.
        width: random features of the ridge.
        rows: the labels of the rows of each part.
        sizes: of the layers of the network of each part.
    """

    model_type = "task_of_texts"

    def __init__(
        self,
        encoder: dict[str, Any] | None = None,
        layers: int = 1,
        inputs: int = 1,
        width: int = 1,
        rows: Sequence[Sequence[int]] = ((0,),),
        sizes: Sequence[Sequence[int]] = ((1, 1),),
        **kwargs: Any,
    ) -> None:
        self.encoder, self.layers, self.inputs, self.width = encoder or {}, layers, inputs, width
        self.rows, self.sizes = rows, sizes
        super().__init__(**kwargs)


class TaskModel(PreTrainedModel):  # type: ignore[no-untyped-call]
    """Texts to labels: `logits` are log-probabilities."""

    config_class = TaskConfig

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        factory: Any = AutoModel
        encoder = factory.from_config(AutoConfig.for_model(**config.encoder))
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None  # which nothing reads
        networks = [perceptron(sizes) for sizes in config.sizes]
        answer = Answer(config.inputs, config.width, config.rows, networks)
        self.pad = encoder.config.pad_token_id or 0
        self.task = TextTask(encoder, config.layers, answer)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Any = None
    ) -> SequenceClassifierOutput:
        """Log-probabilities of the labels of some texts."""
        mask = input_ids.ne(self.pad) if attention_mask is None else attention_mask
        return SequenceClassifierOutput(logits=self.task(input_ids, mask))
