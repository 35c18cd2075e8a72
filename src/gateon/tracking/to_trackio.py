"""Trackio: a local data base, or a Space, as TRACKIO_SPACE_ID says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from .tracker import Started

__all__ = ["Trackio"]

PROJECT = "gateon"  # unless TRACKIO_PROJECT says another


class Trackio:
    """Logs to the project TRACKIO_PROJECT or gateon: `trackio show` opens it."""

    name = "trackio"

    def start(self, run: Started) -> str:
        """Begin the run with its configuration, or go on with it; it is known by its name."""
        import trackio

        self.run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT") or PROJECT,
            name=run.id or f"{run.name}-{uuid4().hex[:6]}",
            group=run.group or None,
            space_id=os.environ.get("TRACKIO_SPACE_ID") or None,
            config=dict(run.settings),
            resume="never" if run.id is None else "allow",
            embed=False,
        )
        return str(self.run.name)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log them."""
        self.run.log(dict(values), step=step)

    def artefact(self, path: Path) -> None:
        """Log the file."""
        self.run.log_artifact(path, name=f"{self.run.name}-{path.name}", type="gateon")

    def end(self, finished: bool) -> None:
        """Send what is left."""
        self.run.finish()
