"""TensorBoard: event files in the directory of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from .tracker import Started

__all__ = ["TensorBoard"]

FOLDER = "tensorboard"  # in the directory of a run


class TensorBoard:
    """Writes event files into RUN/tensorboard: `tensorboard --logdir runs` shows all runs.

    A run without a directory has them where TensorBoard puts them, in runs/DATE_HOST.
    """

    name = "tensorboard"

    def start(self, run: Started) -> str:
        """Open the event file; the id is the directory's name."""
        from torch.utils.tensorboard import SummaryWriter

        folder = None if run.folder is None else str(run.folder / FOLDER)
        self.writer = SummaryWriter(folder)
        if run.id is None:
            settings = json.dumps(run.settings, indent=1, default=str)
            self.writer.add_text("settings", f"    {settings.replace(chr(10), chr(10) + '    ')}")
        return FOLDER

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write them, so that a run that is killed right after has them."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def artefact(self, path: Path) -> None:
        """Say where it is: TensorBoard keeps no files."""
        self.writer.add_text(f"artefacts/{path.name}", str(path))

    def end(self, finished: bool) -> None:
        """Close the file."""
        self.writer.close()
