"""A state as one file: its tensors in safetensors, the rest as JSON in the header, and the sha256 of every part of it.

No pickle: a file from elsewhere cannot run anything. One file: it is written aside, synced and
renamed, so that there is always a whole one; what was damaged later is recognised by the sha256 of
its parts.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .files import is_regular

__all__ = ["SCHEMA", "DamagedError", "WriteError", "load", "save", "whole_file"]

SCHEMA = 3  # 1: the whole state as one JSON text, no sha256; 2: every row of a run's tables in full
# names in the header: the manifest, its sha256, the JSON of each part
MANIFEST, CHECK, PART = (
    "gateon",
    "sha256",
    "part:",
)
TENSOR = "tensor"  # {"tensor": name} in the JSON stands for a tensor
# {"pairs": [[key, value], ...]} stands for a dict whose keys are not all strings, or are one of
# these
PAIRS = "pairs"
KINDS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class DamagedError(ValueError):
    """A file is no checkpoint, or no longer the one that was written."""


class WriteError(OSError):
    """A file could not be written; what was there before still is."""


def save(state: Mapping[str, Any], path: Path) -> None:
    """Write the state to the path, whole or not at all. Equal states give equal bytes.

    Args:
        state: named parts, each of nested dicts, lists, tensors and plain values.
        path: the file.

    >>> import tempfile, torch
    >>> path = Path(tempfile.mkdtemp()) / "state.safetensors"
    >>> save({"weight": torch.ones(2), "step": 3, "state": {0: None}}, path)
    >>> load(path)
    {'weight': tensor([1., 1.]), 'step': 3, 'state': {0: None}}
    >>> load(path, only=["step"])
    {'step': 3}
    """
    if not all(isinstance(name, str) for name in state):
        raise TypeError("The parts of a state have names.")
    tensors: dict[str, Tensor] = {}
    texts = {name: json.dumps(_without_tensors(value, tensors)) for name, value in state.items()}
    # so that each begins where it may
    ordered = dict(sorted(tensors.items(), key=lambda item: -item[1].element_size()))
    header = _header(texts, ordered)
    with whole_file(path) as aside, open(aside, "wb") as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for tensor in ordered.values():
            file.write(_bytes(tensor).data)


def load(path: Path, only: Collection[str] | None = None) -> dict[str, Any]:
    """The state that `save` wrote, every part checked; or some of its parts, the others left unread.

    A damaged or foreign file raises `DamagedError`, one of a newer gateon a plain ValueError.
    """
    try:
        if not is_regular(path):
            raise DamagedError("it is no regular file")
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            manifest = None
            if MANIFEST in header:
                manifest = json.loads(_checked(header[MANIFEST], header[CHECK], "manifest"))
            if manifest is not None and manifest["schema"] > SCHEMA:
                raise _NewerError(
                    f"{path} has schema {manifest['schema']}, this gateon reads up to {SCHEMA}: update gateon to read it."
                )
            return _parts(header, manifest, file.get_tensor, only)
    except _NewerError:
        raise
    except (
        SafetensorError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as reason:
        why = str(reason) if isinstance(reason, DamagedError) else "it cannot be read"
        raise DamagedError(
            f"{path} is damaged or no checkpoint of gateon ({why}): delete it to start anew."
        ) from reason


class _NewerError(ValueError):
    pass


def _parts(
    header: Mapping[str, str],
    manifest: Any,
    get_tensor: Callable[[str], Tensor],
    only: Collection[str] | None,
) -> dict[str, Any]:
    known: dict[str, Tensor] = {}

    def tensor(name: str) -> Tensor:
        if name not in known:
            held = get_tensor(name)
            if manifest is not None and _digest(held) != manifest["tensors"][name]:
                raise DamagedError(f"the sha256 of tensor {name} differs")
            known[name] = held.clone()  # away from the file, which may change
        return known[name]

    if manifest is None:
        state = _with_tensors(json.loads(header["state"]), tensor)
        return {name: state[name] for name in state if only is None or name in only}
    texts = {
        name.removeprefix(PART): text for name, text in header.items() if name.startswith(PART)
    }
    if texts.keys() != manifest["parts"].keys():
        raise DamagedError("its parts are not those it names")
    state = {}
    for name in manifest["parts"]:
        if only is None or name in only:
            text = _checked(texts[name], manifest["parts"][name], name)
            state[name] = _with_tensors(json.loads(text), tensor)
    return state


def _checked(text: str, digest: str, name: str) -> str:
    if _text_digest(text) != digest:
        raise DamagedError(f"the sha256 of its {name} differs")
    return text


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
    _refuse_link(aside)
    try:
        aside.unlink(missing_ok=True)  # what a process that died left
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        made = os.lstat(aside)
        yield aside
        with open(aside, "rb+") as file:
            os.fsync(file.fileno())
        _refuse_link(aside)
        if not os.path.samestat(made, os.lstat(aside)):
            raise WriteError(
                f"{aside} was replaced by somebody else while it was written: try again."
            )
        os.replace(aside, path)
        _sync_names(path.parent)
    except WriteError:
        raise
    except OSError as reason:
        why = reason.strerror or str(reason)
        raise WriteError(
            f"{path} could not be written ({why}): make room there or choose another place."
        ) from reason
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def _refuse_link(path: Path) -> None:
    """A link would lead what is written elsewhere."""
    if path.is_symlink():
        raise WriteError(
            f"{path} is a symbolic link, and files are not written through links: remove it."
        )


def _sync_names(folder: Path) -> None:
    """A new name is on the disk only once its directory is."""
    if os.name == "nt":  # where directories cannot be opened
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as reason:
        if reason.errno not in (
            errno.EINVAL,
            errno.ENOTSUP,
        ):  # file systems that sync names by themselves
            raise
    finally:
        os.close(number)


def _header(texts: Mapping[str, str], tensors: Mapping[str, Tensor]) -> bytes:
    """The header of a safetensors file: where each tensor is, the JSON of the parts, and the sha256 of them all."""
    manifest = {
        "schema": SCHEMA,
        "parts": {name: _text_digest(text) for name, text in texts.items()},
        "tensors": {name: _digest(tensor) for name, tensor in tensors.items()},
    }
    written = json.dumps(manifest)
    named = {MANIFEST: written, CHECK: _text_digest(written)} | {
        PART + name: text for name, text in texts.items()
    }
    described: dict[str, Any] = {"__metadata__": named}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        described[name] = {
            "dtype": KINDS[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    header = json.dumps(described).encode()
    return header + b" " * (-len(header) % 8)


def _text_digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _digest(tensor: Tensor) -> str:
    """Of its kind, shape and numbers."""
    digest = sha256(f"{KINDS[tensor.dtype]} {list(tensor.shape)} ".encode())
    digest.update(_bytes(tensor).data)
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> NDArray[np.uint8]:
    held: NDArray[np.uint8] = tensor.reshape(-1).view(torch.uint8).numpy()
    return held


def _without_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        if value.dtype not in KINDS:
            raise TypeError(f"A state holds real numbers, not {value.dtype}.")
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous()
        return {TENSOR: name}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and value.keys() not in ({TENSOR}, {PAIRS}):
            return {key: _without_tensors(item, tensors) for key, item in value.items()}
        return {PAIRS: [[key, _without_tensors(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_without_tensors(item, tensors) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"A state holds tensors, numbers, strings, lists and dicts, not {type(value).__name__}."
    )


def _with_tensors(value: Any, tensor: Callable[[str], Tensor]) -> Any:
    if isinstance(value, list):
        return [_with_tensors(item, tensor) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {TENSOR}:
        return tensor(value[TENSOR])
    if value.keys() == {PAIRS}:
        return {key: _with_tensors(item, tensor) for key, item in value[PAIRS]}
    return {key: _with_tensors(item, tensor) for key, item in value.items()}
