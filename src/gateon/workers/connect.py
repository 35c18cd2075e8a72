"""The Ray cluster that --on names."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from .processes import check_cores

__all__ = ["address_of", "connected", "first_line", "last_line"]

LONG = 5.0  # seconds an address has to answer
PASSED_ON = ("GATEON_DATA", "GATEON_MODELS")  # variables that say where things are


def address_of(on: str) -> str | None:
    """The address that --on names; None for a running cluster, or else a local one.

    >>> address_of("ray"), address_of("ray://10.0.0.1:10001"), address_of("ray:10.0.0.1:6379")
    (None, 'ray://10.0.0.1:10001', '10.0.0.1:6379')
    """
    if on == "ray":
        return None
    kind, _, rest = on.partition(":")
    host, _, port = rest.removeprefix("//").rpartition(":")
    if kind != "ray" or not host or not port.isdigit():
        raise ValueError(
            f"--on must be ray, ray://HOST:PORT (a cluster's door for clients, usually port 10001) "
            f"or ray:HOST:PORT (from one of its own nodes, usually port 6379), got {on!r}."
        )
    return on if rest.startswith("//") else rest


def connected(address: str | None, workers: int | None, threads: int) -> tuple[Any, bool]:
    """Ray, connected; and whether that was done here and must be undone.

    Args:
        address: of the cluster; None for a running one, or else one of this machine alone.
        workers: how many pieces at once, in a cluster of this machine; None for one on each core.
        threads: cores of each piece.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")  # pages about every node that dies
    try:
        import ray
        import ray.exceptions
    except ImportError as missing:
        raise ImportError("--on ray needs Ray: pip install 'gateon[ray]'.") from missing
    if ray.is_initialized():
        return ray, False
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    _check_answers(address)
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    told: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    told |= {"runtime_env": {"env_vars": passed}} if passed else {}
    try:
        ray.init(address or "auto", **told)
        return ray, True
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as reason:
        if address is not None or not isinstance(reason, ConnectionError):
            raise ValueError(
                f"The Ray cluster at {address or 'RAY_ADDRESS'} does not answer "
                f"({first_line(reason)}): check the address, and that Ray is the same version there."
            ) from reason
    check_cores(workers or 1, threads)
    cores = None if workers is None else workers * threads
    try:
        ray.init("local", num_cpus=cores, include_dashboard=False, **told)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as reason:
        raise ValueError(
            f"Ray could not start a cluster on this machine ({first_line(reason)}): "
            "start one with ray start --head, or give --workers instead of --on ray."
        ) from reason
    return ray, True


def _check_answers(address: str | None) -> None:
    """Refuse an address where nothing listens: Ray itself would wait for minutes."""
    wanted = address or os.environ.get("RAY_ADDRESS", "")
    host, _, port = wanted.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), LONG).close()
    except (OSError, OverflowError) as reason:
        raise ValueError(
            f"The Ray cluster at {wanted} does not answer ({reason}): check the address, "
            "and that the cluster is up."
        ) from reason


def first_line(reason: BaseException) -> str:
    """What an error says, in its first line."""
    return (str(reason).strip().splitlines() or [type(reason).__name__])[0].rstrip(".")


def last_line(reason: BaseException) -> str:
    """What an error says, in its last line."""
    return (str(reason).strip().splitlines() or [type(reason).__name__])[-1].rstrip(".")
