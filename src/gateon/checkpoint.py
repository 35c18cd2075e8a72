"""A state of nested dicts, lists, tensors and numbers as one file: tensors in safetensors, the rest as JSON in its header.

No pickle: a file from elsewhere cannot run anything. One file: it is written aside, synced and renamed, so that there is always a
whole one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["load", "replace_file", "save"]

TENSOR = "tensor"  # {"tensor": name} in the JSON stands for a tensor
PAIRS = "pairs"  # {"pairs": [[key, value], ...]} stands for a dict whose keys are not all strings


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
    aside = path.with_name(path.name + ".part")
    try:
        save_file(tensors, aside, metadata={"state": skeleton})
        replace_file(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def load(path: Path) -> Any:
    """The state that `save` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            skeleton = json.loads(file.metadata()["state"])
        return _with_tensors(skeleton, tensors)
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as reason:
        raise ValueError(f"{path} is damaged or no checkpoint of gateon: delete it to start anew.") from reason


def replace_file(aside: Path, path: Path) -> None:
    """Put a finished file in its place so that even a crash leaves the old one or the new one, whole."""
    with open(aside, "rb") as file:
        os.fsync(file.fileno())
    os.replace(aside, path)


def _without_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().contiguous().clone()  # safetensors refuses tensors that share memory
        return {TENSOR: name}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
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
