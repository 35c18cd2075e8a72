"""What makes two runs the same run: the resolved specification, the numerics, and the data.

Data are compared by the hash of their arrays: see `gateon.runs.folder.check_same`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

__all__ = ["NUMERICS", "check_clean", "commit", "is_dirty", "key_of"]

# The version of the numbers that gateon computes. A commit that changes a result beyond rounding,
# for equal options and data, raises it by one and says so in the CHANGELOG; a commit that only
# moves code does not. Records without a version are older, and count as version 1.
NUMERICS = 1

WITHOUT_EFFECT = ("data_limit",)  # options of a stream that never change its data
# Options added since the first records, at the value that does what was done before.
ADDED = {"method": {"tasks": None, "gather_after": 0.0, "residual": "branch"}}


def key_of(specification: Mapping[str, Any], numerics: int = NUMERICS) -> str:
    """A short name for a run: equal for equal resolved specifications and numerics.

    Args:
        specification: nested and resolved, as `Specification.to_dict` gives it.
        numerics: version of the numbers.

    >>> key_of({"seed": 0}) == key_of({"seed": 0}), key_of({"seed": 0}) == key_of({"seed": 1})
    (True, False)
    """
    stream = {
        name: value
        for name, value in specification.get("stream", {}).items()
        if name not in WITHOUT_EFFECT
    }
    decisive = {**specification, "stream": stream, "numerics": numerics}
    for section, added in ADDED.items():
        asked = specification.get(section, {})
        decisive[section] = {
            name: value
            for name, value in asked.items()
            if name not in added or value != added[name]
        }
    return sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]


def commit() -> str | None:
    """The commit of the source tree gateon runs from, with a + where it has changes.

    None for an installed package.
    """
    try:
        # A package installed below some other repository is not part of it.
        _git("ls-files", "--error-unmatch", __file__)
        changed = _git("status", "--porcelain", "--untracked-files=no", ".")
        return _git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def is_dirty() -> bool:
    """Whether gateon runs from a source tree with uncommitted changes."""
    return (commit() or "").endswith("+")


def check_clean(allow_dirty: bool) -> None:
    """Refuse to write a record of the project from a source tree with changes.

    For records that others will rely on: tables and benchmarks. The runs of users are never
    refused; their records say whether the tree had changes.

    Args:
        allow_dirty: write it all the same; the record says so.
    """
    if not allow_dirty and is_dirty():
        raise ValueError(
            "The source tree of gateon has changes that are not committed, so that no one could "
            "make this record again: commit them, or give --allow-dirty."
        )


def _git(*words: str) -> str:
    here = Path(__file__).parents[1]  # the whole package
    return subprocess.run(
        ["git", *words], cwd=here, capture_output=True, text=True, timeout=10, check=True
    ).stdout.strip()
