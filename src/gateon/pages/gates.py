"""Which units contexts share, and how much a run keeps: read from its last checkpoint."""

from __future__ import annotations

import base64
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..runs import metrics
from ..runs.folder import checkpoints
from ..storage import checkpoint
from .words import Facts

__all__ = [
    "bytes_kept",
    "correlation",
    "facts_of_gates",
    "gates_of_run",
    "gates_of_state",
    "overlap",
    "packed",
    "similarity_order",
]

GATES = ".context_gate.weight"  # the gates of a site in the state of a model
INSIDE = "inside.npz"  # what gateon reproduce keeps of gates
KEPT = ("model", "members", "networks", "method", "stored")  # parts of a learner's state
SHOWN = 300  # contexts in a picture
LAYERS = 8  # that are shown apart

Open = NDArray[np.bool_]  # (contexts, units)
Matrix = NDArray[np.float64]


def gates_of_run(folder: Path) -> dict[str, Open]:
    """By site, which units are open in which context; nothing if it was not kept."""
    model = (_learner(folder) or {}).get("model")
    found = gates_of_state(model) if isinstance(model, dict) else {}
    return found or _inside(folder)


def gates_of_state(model: Mapping[str, Tensor]) -> dict[str, Open]:
    """By site, which units are open in which context, from the state of a model."""
    return {
        name.removesuffix(GATES): (value > 0).numpy()
        for name, value in model.items()
        if name.endswith(GATES) and value.dim() == 2 and value.device.type != "meta"
    }


def bytes_kept(folder: Path) -> int | None:
    """What a run must keep to go on: the network and what the method remembers; None if unknown."""
    learner = _learner(folder)
    if learner is not None:
        return sum(_size(learner.get(part)) for part in KEPT) or None
    held = _arrays(folder)
    return int(held["state_bytes"]) if "state_bytes" in held else None


def overlap(is_open: Open) -> Matrix:
    """|i and j| / |i or j|: the share of their open units that two contexts have in common.

    >>> overlap(np.array([[True, True, False], [False, True, True]])).round(2)
    array([[1.  , 0.33],
           [0.33, 1.  ]])
    """
    ones = is_open.astype(float)
    both = ones @ ones.T
    either = ones.sum(1)[:, None] + ones.sum(1)[None] - both
    return np.asarray(np.divide(both, either, out=np.zeros_like(both), where=either > 0))


def correlation(is_open: Open) -> Matrix:
    """The correlation of contexts over units (eq. 18, 19); NaN where all gates are alike."""
    return np.asarray(metrics.context_correlation(np.where(is_open, 1.0, -1.0)))


def similarity_order(similarity: Matrix) -> list[int]:
    """An order in which similar contexts stand together: that of the Fiedler vector.

    >>> similarity_order(np.array([[1.0, 0.1, 0.9], [0.1, 1.0, 0.2], [0.9, 0.2, 1.0]]))
    [0, 2, 1]
    """
    if len(similarity) < 3:
        return list(range(len(similarity)))
    laplacian = np.diag(similarity.sum(1)) - similarity
    vector = np.linalg.eigh(laplacian)[1][:, 1]
    vector = vector if vector[0] <= vector[-1] else -vector  # either sign is one
    return [int(n) for n in np.argsort(vector, kind="stable")]


def facts_of_gates(gates: Mapping[str, Open], names: Sequence[str], apart: bool) -> Facts | None:
    """What a page shows of gates; None if there are no two contexts, or too many to show.

    Args:
        gates: by site, as `gates_of_run` returns them.
        names: of the contexts.
        apart: whether every layer is shown, too.
    """
    counts = {len(is_open) for is_open in gates.values()}
    if len(counts) != 1 or not 1 < min(counts) <= SHOWN:
        return None
    whole = np.concatenate(list(gates.values()), axis=1)
    layers = {"all layers": whole}
    if apart and 1 < len(gates) <= LAYERS:
        layers |= {f"layer {site}": is_open for site, is_open in gates.items()}
    contexts = len(whole)
    return {
        "names": [names[n] if n < len(names) else f"context {n + 1}" for n in range(contexts)],
        "order": similarity_order(overlap(whole)),
        "layers": [
            {
                "name": name,
                "units": is_open.shape[1],
                "open": round(float(is_open.mean()), 4),
                "overlap": packed(overlap(is_open), 0.0, 1.0),
                "correlation": packed(correlation(is_open), -1.0, 1.0),
            }
            for name, is_open in layers.items()
        ],
    }


def packed(values: NDArray[Any], low: float, high: float) -> str:
    """Numbers as bytes in base64: low is 0, high is 250, and 255 stands for NaN.

    >>> packed(np.array([0.0, 0.5, 1.0, np.nan]), 0.0, 1.0)
    'AH36/w=='
    """
    known = np.isfinite(values)
    share = np.where(known, (np.where(known, values, low) - low) / ((high - low) or 1.0), 0.0)
    coded = np.where(known, np.rint(250 * share.clip(0, 1)), 255).astype(np.uint8)
    return base64.b64encode(coded.tobytes()).decode()


def _learner(folder: Path) -> dict[str, Any] | None:
    """The learner in the last whole checkpoint; of its tensors only the gates are read."""
    for path in checkpoints(folder):
        try:
            held = checkpoint.load(path, only=["learner"], wanted=lambda name: name.endswith(GATES))
            learner = held["learner"]
        except (ValueError, KeyError, OSError):
            continue
        if isinstance(learner, dict):
            return learner
    return None


def _inside(folder: Path) -> dict[str, Open]:
    return {
        name.removeprefix("gates "): array.astype(bool)
        for name, array in _arrays(folder).items()
        if name.startswith("gates ") and array.ndim == 2
    }


def _arrays(folder: Path) -> dict[str, NDArray[Any]]:
    path = folder / INSIDE
    if not path.exists():
        return {}
    try:
        with np.load(path, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except (ValueError, OSError, zipfile.BadZipFile):
        return {}


def _size(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(_size(item) for item in value.values())
    return sum(_size(item) for item in value) if isinstance(value, list | tuple) else 0
