"""gateon export."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ..life.model import opened
from ..storage.files import printable
from .parse import Directory

__all__ = ["command"]


def command(
    directory: Directory,
    task: str | None = None,
    format: Literal["torch", "onnx", "hf"] = "torch",
    out: Path | None = None,
) -> None:
    """Write one task as files that run without gateon: plain, folded, with what prepares its input.

    The files are compared with the model before they are kept. Its README.md shows how to use it.

    Args:
        directory: of the model.
        task: which one; the only one by default.
        format: torch (a program of torch.export), onnx, or hf (a directory for transformers; texts
            only).
        out: the directory to write; DIRECTORY-TASK-FORMAT by default.
    """
    print(printable(opened(directory).export(task, format, out)))
