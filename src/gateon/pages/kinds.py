"""What directories hold, and the facts of a page about them; anything else is refused in a sentence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from ..storage.files import content_of
from .living import facts_of_model
from .runs import NothingError, facts_of_runs, found_runs
from .tables import facts_of_tables

__all__ = ["Facts", "Kind", "NothingError", "facts", "kind_of"]

Facts = dict[str, Any]
Kind = Literal["runs", "living", "tables"]
NOUNS: dict[Kind, str] = {
    "runs": "runs",
    "living": "a living model",
    "tables": "reproduced tables",
}
LARGEST = 1 << 28  # bytes of a record


def facts(folders: Sequence[Path]) -> Facts:
    """Everything a page shows.

    Args:
        folders: of runs, of comparisons (directories of runs), of a living model, or of reproduced
            tables.
    """
    kinds = {folder: kind_of(folder) for folder in folders}
    found = {kind: folder for folder, kind in kinds.items() if kind is not None}
    if not found:
        raise NothingError(folders)
    if len(found) > 1:
        first, other = list(found)[:2]
        raise ValueError(
            f"{found[first]} holds {NOUNS[first]} and {found[other]} holds {NOUNS[other]}: "
            "make a page of each."
        )
    kind = next(iter(found))
    chosen = [folder for folder, own in kinds.items() if own is not None]
    if kind == "living":
        if len(chosen) > 1:
            raise ValueError(f"{chosen[0]} and {chosen[1]} are living models: make a page of each.")
        return facts_of_model(chosen[0])
    if kind == "tables":
        return facts_of_tables([path for folder in chosen for path in _tables_in(folder)])
    return facts_of_runs(chosen)


def kind_of(folder: Path) -> Kind | None:
    """What a directory holds; None if that is nothing yet."""
    if not folder.is_dir():
        raise ValueError(f"There is no directory {folder}.")
    if (folder / "current").exists():
        return "living"
    below = sorted(folder.glob("*/record.json"))
    for path in (folder / "record.json", *below[:1]):
        if path.exists():
            return _kind_of_record(path)
    return "runs" if found_runs(folder) else None


def _kind_of_record(path: Path) -> Kind:
    held = _json(path)
    if isinstance(held.get("entries"), list):
        return "tables"
    if "result" in held:
        raise ValueError(
            f"{path} is the record of a benchmark or a search, and there is no page of these: its "
            "figures are in the file itself."
        )
    return "runs"


def _tables_in(folder: Path) -> list[Path]:
    """The records of tables in a directory, or right below it."""
    own = folder / "record.json"
    paths = [own] if own.exists() else sorted(folder.glob("*/record.json"))
    return [path for path in paths if isinstance(_json(path).get("entries"), list)]


def _json(path: Path) -> Facts:
    try:
        found: Facts = json.loads(content_of(path, LARGEST).decode())
        return found if isinstance(found, dict) else {}
    except (ValueError, RecursionError) as reason:
        raise ValueError(
            f"{path} is not a gateon record, or it is damaged: move it away."
        ) from reason
