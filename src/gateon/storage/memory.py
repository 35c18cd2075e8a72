"""Free memory of the machine or a device."""

from __future__ import annotations

from pathlib import Path

import torch

__all__ = ["free_bytes"]


def free_bytes(device: str = "cpu") -> int | None:
    """The number of free bytes on a device; None if unknown.

    >>> free_bytes("mps") is None
    True
    """
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    if device != "cpu":
        return None
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(
            1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")
        )
    except (OSError, StopIteration):
        return None
    return min([free, *_container_limit()])


def _container_limit() -> list[int]:
    """The number of bytes a container still allows; empty if it sets no limit."""
    try:
        limit, used = (
            Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current")
        )
        return [int(limit) - int(used)]
    except (OSError, ValueError):
        return []
