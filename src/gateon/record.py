"""What a run leaves: the record, as a schema."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

__all__ = ["environment"]


def environment() -> dict[str, object]:
    """Where and with what a figure was made: versions, commit, machine, time.

    >>> sorted(environment())
    ['commit', 'cores', 'machine', 'processor', 'python', 'threads', 'time', 'versions']
    """
    return {
        "versions": {name: _version(name) for name in ("gateon", "torch", "numpy", "safetensors")},
        "python": platform.python_version(),
        "commit": _commit(),
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the source tree gateon runs from, with a + where it has changes; None for an installed package."""
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=10, check=True)
        changes = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no", "."],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
