"""How much memory is free."""

from __future__ import annotations

from pathlib import Path

import torch

__all__ = ["free_bytes"]


def free_bytes(device: str = "cpu") -> int | None:
    """The memory that is free on a device; None where that cannot be known."""
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
    return min([free, *_room_of_container()])


def _room_of_container() -> list[int]:
    """What a container still allows, where there is one that sets a limit."""
    try:
        limit, used = (
            Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current")
        )
        return [int(limit) - int(used)]
    except (OSError, ValueError):
        return []
