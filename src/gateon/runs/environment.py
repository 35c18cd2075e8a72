"""Where and with what a run was made."""

from __future__ import annotations

import multiprocessing
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from .identity import commit

__all__ = ["environment"]

# How processes of `gateon.workers` are named, after their place.
WORKERS = ("worker ", "ray on ")


def environment() -> dict[str, object]:
    """Where and with what a figure was made: versions, commit, machine, time.

    >>> sorted(environment())
    ['commit', 'cores', 'machine', 'processor', 'python', 'threads', 'time', 'versions', 'worker']
    """
    process = multiprocessing.current_process()
    return {
        "versions": {name: _version(name) for name in ("gateon", "torch", "numpy", "safetensors")},
        "python": platform.python_version(),
        "commit": commit(),
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "worker": process.name if process.name.startswith(WORKERS) else None,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
