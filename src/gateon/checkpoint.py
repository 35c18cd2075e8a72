"""A state of nested dicts, lists, tensors and numbers as one file: tensors in safetensors, the rest as JSON in its header.

No pickle: a file from elsewhere cannot run anything. One file: it is written aside, synced and renamed, so that there is always a
whole one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["load", "save", "whole_file"]

TENSOR = "tensor"  # {"tensor": name} in the JSON stands for a tensor
PAIRS = "pairs"  # {"pairs": [[key, value], ...]} stands for a dict whose keys are not all strings, or are one of these


def save(state: Any, path: Path) -> None:
    """Write the state to the path, whole or not at all.

    >>> import tempfile, torch
    >>> path = Path(tempfile.mkdtemp()) / "state.safetensors"
    >>> save({"weight": torch.ones(2), "step": 3, "state": {0: None}}, path)
    >>> load(path)
    {'weight': tensor([1., 1.]), 'step': 3, 'state': {0: None}}
    """
    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps(_without_tensors(state, tensors))
    with whole_file(path) as aside:
        save_file(tensors, aside, metadata={"state": skeleton})


def load(path: Path) -> Any:
    """The state that `save` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            skeleton = json.loads(file.metadata()["state"])
        return _with_tensors(skeleton, tensors)
    except (SafetensorError, KeyError, TypeError, ValueError) as reason:
        raise ValueError(f"{path} is damaged or no checkpoint of gateon: delete it to start anew.") from reason


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file aside to write, then synced and put in its place: a crash or a full disk leaves the old one or the new one, whole.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "figures.txt"
    >>> with whole_file(path) as aside:
    ...     written = aside.write_text("1 2 3")
    >>> path.read_text(), aside.exists()
    ('1 2 3', False)
    """
    aside = path.with_name(path.name + ".part")
    try:
        yield aside
        with open(aside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    except (OSError, SafetensorError) as reason:
        why = getattr(reason, "strerror", None) or str(reason)
        raise OSError(f"{path} could not be written ({why}): make room there or choose another place.") from reason
    finally:
        aside.unlink(missing_ok=True)


def _without_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().contiguous().clone()  # safetensors refuses tensors that share memory
        return {TENSOR: name}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and value.keys() not in ({TENSOR}, {PAIRS}):
            return {key: _without_tensors(item, tensors) for key, item in value.items()}
        return {PAIRS: [[key, _without_tensors(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_without_tensors(item, tensors) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"A state holds tensors, numbers, strings, lists and dicts, not {type(value).__name__}.")


def _with_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_with_tensors(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {TENSOR}:
        return tensors[value[TENSOR]]
    if value.keys() == {PAIRS}:
        return {key: _with_tensors(item, tensors) for key, item in value[PAIRS]}
    return {key: _with_tensors(item, tensors) for key, item in value.items()}
