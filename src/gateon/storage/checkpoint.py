"""A state as one safetensors file: tensors, the rest as JSON in the header, and checksums of both.

There is no pickle, so a file from elsewhere cannot run code. It is written to a temporary file,
synced and renamed, so that there is always a whole one; damage done later shows in the sha256 of
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
# Names in the header: the manifest, its sha256, and the prefix for the JSON of each part.
MANIFEST, CHECK, PART = "gateon", "sha256", "part:"
# In the JSON {"tensor": name} stands for a tensor, and {"pairs": [[key, value], ...]} for a dict
# whose keys are not all strings, or which looks like one of these two.
TENSOR, PAIRS = "tensor", "pairs"
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
DTYPES = {kind: dtype for dtype, kind in KINDS.items()}


class DamagedError(ValueError):
    """A file is not a checkpoint, or no longer the one that was written."""


class WriteError(OSError):
    """A file could not be written; the previous one is still there."""


def save(state: Mapping[str, Any], path: Path) -> None:
    """Write a state to a file, completely or not at all. Equal states give equal bytes.

    Args:
        state: Named parts, each made of nested dicts, lists, tensors and plain values.
        path: The file.

    >>> import tempfile, torch
    >>> path = Path(tempfile.mkdtemp()) / "state.safetensors"
    >>> save({"weight": torch.ones(2), "step": 3, "state": {0: None}}, path)
    >>> load(path)
    {'weight': tensor([1., 1.]), 'step': 3, 'state': {0: None}}
    >>> load(path, only=["step"])
    {'step': 3}
    """
    if not all(isinstance(name, str) for name in state):
        raise TypeError("The names of a state's parts must be strings.")
    tensors: dict[str, Tensor] = {}
    texts = {name: json.dumps(_without_tensors(value, tensors)) for name, value in state.items()}
    # Largest elements first, so that every tensor is aligned.
    ordered = dict(sorted(tensors.items(), key=lambda item: -item[1].element_size()))
    header = _header(texts, ordered)
    with whole_file(path) as temporary, open(temporary, "wb") as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for tensor in ordered.values():
            file.write(_bytes(tensor).data)


def load(
    path: Path,
    only: Collection[str] | None = None,
    wanted: Callable[[str], bool] = lambda name: True,
) -> dict[str, Any]:
    """Read a state that `save` wrote, and verify its checksums.

    Args:
        path: The file. If it is damaged or not a checkpoint, `DamagedError` is raised; if it was
            written by a newer gateon, a plain ValueError.
        only: The parts to read; None for all.
        wanted: Whether to read the tensors of a name in a dict; the others come as mere shapes, on
            the device "meta".

    Returns:
        The state.
    """
    try:
        if not is_regular(path):
            raise DamagedError("it is not a regular file")
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            manifest = None
            if MANIFEST in header:
                manifest = json.loads(_checked(header[MANIFEST], header[CHECK], "manifest"))
            if manifest is not None and manifest["schema"] > SCHEMA:
                raise _NewerError(
                    f"{path} has schema {manifest['schema']}, this gateon reads up to {SCHEMA}: "
                    "update gateon to read it."
                )

            def shape(name: str) -> Tensor:
                held = file.get_slice(name)
                return torch.empty(held.get_shape(), dtype=DTYPES[held.get_dtype()], device="meta")

            return _parts(header, manifest, file.get_tensor, only, wanted, shape)
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
            f"{path} is damaged or not a gateon checkpoint ({why}): delete it to start anew."
        ) from reason


class _NewerError(ValueError):
    pass


def _parts(
    header: Mapping[str, str],
    manifest: Any,
    get_tensor: Callable[[str], Tensor],
    only: Collection[str] | None,
    wanted: Callable[[str], bool],
    shape: Callable[[str], Tensor],
) -> dict[str, Any]:
    known: dict[str, Tensor] = {}

    def tensor(name: str, key: str) -> Tensor:
        if not wanted(key):
            return shape(name)
        if name not in known:
            held = get_tensor(name)
            if manifest is not None and _digest(held) != manifest["tensors"][name]:
                raise DamagedError(f"the sha256 of tensor {name} differs")
            known[name] = held.clone()  # independent of the file, which may change
        return known[name]

    if manifest is None:
        state = _with_tensors(json.loads(header["state"]), tensor)
        return {name: state[name] for name in state if only is None or name in only}
    texts = {
        name.removeprefix(PART): text for name, text in header.items() if name.startswith(PART)
    }
    if texts.keys() != manifest["parts"].keys():
        raise DamagedError("its parts are not those of its manifest")
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
    """Write a file atomically: a crash or a full disk leaves the old file or the new one, whole.

    Args:
        path: The file.

    Yields:
        A temporary file to write, which is then synced and renamed to `path`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "figures.txt"
    >>> with whole_file(path) as temporary:
    ...     written = temporary.write_text("1 2 3")
    >>> path.read_text(), temporary.exists()
    ('1 2 3', False)
    """
    temporary = path.with_name(path.name + ".part")
    _refuse_link(temporary)
    try:
        temporary.unlink(missing_ok=True)  # left over from a process that died
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        made = os.lstat(temporary)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        _refuse_link(temporary)
        if not os.path.samestat(made, os.lstat(temporary)):
            raise WriteError(
                f"{temporary} was replaced by another process while it was written: try again."
            )
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except WriteError:
        raise
    except OSError as reason:
        why = reason.strerror or str(reason)
        raise WriteError(
            f"{path} could not be written ({why}): free some space, or choose another place."
        ) from reason
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _refuse_link(path: Path) -> None:
    """Refuse a link, which would redirect what is written."""
    if path.is_symlink():
        raise WriteError(
            f"{path} is a symbolic link, and gateon does not write through links: remove it."
        )


def _sync_directory(folder: Path) -> None:
    """Sync a directory: a new name is on disk only once its directory is."""
    if os.name == "nt":  # where directories cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as reason:  # some file systems sync names on their own and refuse this
        if reason.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _header(texts: Mapping[str, str], tensors: Mapping[str, Tensor]) -> bytes:
    """The header of a safetensors file: offsets of the tensors, JSON of the parts, checksums."""
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
    """The sha256 of its dtype, shape and data."""
    digest = sha256(f"{KINDS[tensor.dtype]} {list(tensor.shape)} ".encode())
    digest.update(_bytes(tensor).data)
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> NDArray[np.uint8]:
    held: NDArray[np.uint8] = tensor.reshape(-1).view(torch.uint8).numpy()
    return held


def _without_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        if value.dtype not in KINDS:
            raise TypeError(f"Tensors of a state must be real, got {value.dtype}.")
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
        "A state must consist of tensors, numbers, strings, lists and dicts, "
        f"got {type(value).__name__}."
    )


def _with_tensors(value: Any, tensor: Callable[[str, str], Tensor], key: str = "") -> Any:
    """A value with its tensors, each asked for by its name and the key it stands under."""
    if isinstance(value, list):
        return [_with_tensors(item, tensor, key) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {TENSOR}:
        return tensor(value[TENSOR], key)
    pairs = value[PAIRS] if value.keys() == {PAIRS} else value.items()
    return {name: _with_tensors(item, tensor, str(name)) for name, item in pairs}
