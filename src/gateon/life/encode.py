"""Rows to what a network sees. An encoder is fitted on the first task and kept with the model.

Its state is plain JSON. Texts become normalised strings, which the tokenizer of the network takes;
images become (N, C, S, S) and features (N, F), both float32 arrays of numpy.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .encode_features import FeatureEncoder
from .encode_images import ImageEncoder
from .encode_texts import TextEncoder
from .table import Table
from .understand import Understanding

__all__ = ["Encoder", "fit_encoder", "restore_encoder"]

Encoder = TextEncoder | ImageEncoder | FeatureEncoder
"""Each has fit(table, inputs, rows), encode(table, inputs, rows), state() and from_state(state).

`encode` returns the values and sentences about what it had to leave out, cut or fill in.
"""

KINDS: dict[str, type[TextEncoder] | type[ImageEncoder] | type[FeatureEncoder]] = {
    "texts": TextEncoder,
    "images": ImageEncoder,
    "features": FeatureEncoder,
}


def fit_encoder(
    table: Table, understanding: Understanding, rows: NDArray[np.int64] | None = None
) -> Encoder:
    """An encoder for data of this kind, fitted on the rows to train on.

    >>> from .understand import understand
    >>> table = Table({"heat": np.array([1.0, 3.0]), "y": np.array(["cold", "warm"], object)}, "x")
    >>> understanding = understand(table)
    >>> encoder = fit_encoder(table, understanding)
    >>> encoder.encode(table, understanding.inputs)[0]
    array([[-1.,  0.],
           [ 1.,  0.]], dtype=float32)
    """
    chosen = understanding.parts["train"] if rows is None else rows
    return KINDS[understanding.kind].fit(table, understanding.inputs, chosen)


def restore_encoder(state: Mapping[str, Any]) -> Encoder:
    """The encoder whose `state()` this is."""
    kind = state.get("kind")
    if kind not in KINDS:
        raise ValueError(f"There is no encoder of kind {kind!r}: use {', '.join(KINDS)}.")
    return KINDS[kind].from_state(state)
