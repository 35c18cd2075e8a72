"""The line to write where a model cannot be followed without data: a batch it may take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvNd

from .composite import is_message_passing

__all__ = ["example_line"]


def example_line(model: nn.Module) -> str:
    """A call of `attach` with an example, guessed from the config or the first layer of a model.

    >>> example_line(nn.Sequential(nn.Linear(5, 3)))
    'gateon.attach(model, example=torch.zeros(2, 5))'
    """
    return f"gateon.attach(model, example={_from_config(model) or _from_layers(model)})"


def _from_config(model: nn.Module) -> str | None:
    """A mapping for a model of transformers; None for others."""
    config: Any = getattr(model, "config", None)
    name = getattr(model, "main_input_name", None)
    if config is None or not isinstance(name, str):
        return None
    ids = "torch.ones(2, 8, dtype=torch.long)"
    if name == "pixel_values":
        size = getattr(config, "image_size", None) or 224
        height, width = size if isinstance(size, list | tuple) else (size, size)
        channels = getattr(config, "num_channels", None) or 3
        given = f'"{name}": torch.zeros(2, {channels}, {height}, {width})'
    elif name == "input_values":
        given = f'"{name}": torch.zeros(2, 16000)'
    elif name == "input_features":
        given = f'"{name}": torch.zeros(2, {getattr(config, "num_mel_bins", 80)}, 3000)'
    else:
        given = f'"{name}": {ids}'
    decodes = getattr(config, "is_encoder_decoder", False)
    return "{" + given + (f', "decoder_input_ids": {ids}' if decodes else "") + "}"


def _from_layers(model: nn.Module) -> str:
    """One tensor for each input that `forward` asks for; the first as the first layer reads it."""
    asked = [
        p.name
        for p in inspect.signature(model.forward).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    guess = next((read(m) for m in model.modules() for t, read in READS if _is(m, t)), None)
    first = guess or (asked[0] if asked else "x")
    if len(asked) < 2:
        return first
    rest = ("torch.tensor([[0, 1], [1, 0]])" if n == "edge_index" else n for n in asked[1:])
    return f"({', '.join([first, *rest])})"


def _is(module: nn.Module, kind: type | Callable[[nn.Module], bool]) -> bool:
    return isinstance(module, kind) if isinstance(kind, type) else kind(module)


def _of_convolution(layer: Any) -> str:
    positions = {1: "64", 2: "32, 32", 3: "16, 16, 16"}[len(layer.kernel_size)]
    return f"torch.zeros(2, {layer.in_channels}, {positions})"


def _of_recurrent(layer: Any) -> str:
    return f"torch.zeros(2, 8, {layer.input_size})"


READS: list[tuple[type | Callable[[nn.Module], bool], Callable[[Any], str]]] = [
    (_ConvNd, _of_convolution),
    (nn.Linear, lambda layer: f"torch.zeros(2, {layer.in_features})"),
    (nn.Embedding, lambda layer: "torch.ones(2, 8, dtype=torch.long)"),
    (nn.RNNBase, _of_recurrent),
    (nn.RNNCellBase, _of_recurrent),
    (nn.MultiheadAttention, lambda layer: f"torch.zeros(2, 8, {layer.embed_dim})"),
    (is_message_passing, lambda layer: f"torch.zeros(4, {layer.in_channels})"),
]
