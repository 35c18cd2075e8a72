"""Weights & Biases: online, offline or disabled, as WANDB_MODE says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .tracker import Started

__all__ = ["WandB"]

PROJECT = "gateon"  # unless WANDB_PROJECT says another
STEP = "batches"  # the axis of every figure: batches learned so far


class WandB:
    """Logs to the project WANDB_PROJECT or gateon; WANDB_MODE=offline needs no network.

    If a run is active, as after `wandb.init()`, that is the one it logs to.
    """

    name = "wandb"

    def start(self, run: Started) -> str:
        """Begin the run with its configuration, or go on with it."""
        import wandb

        active = wandb.run
        self.own = active is None
        if active is not None:
            self.run = active
            self.run.config.update(dict(run.settings), allow_val_change=True)  # type: ignore[no-untyped-call,unused-ignore]
        else:
            self.run = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or PROJECT,
                name=run.name,
                group=run.group or None,
                config=dict(run.settings),
                id=run.id,
                resume=None if run.id is None else "allow",
            )
        self.run.define_metric(STEP)
        self.run.define_metric("*", step_metric=STEP)
        return str(self.run.id)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log them as one row, with the step as its axis."""
        self.run.log({**values, STEP: step})

    def artefact(self, path: Path) -> None:
        """Copy the file to the run's files."""
        self.run.save(str(path.resolve()), base_path=str(path.resolve().parent), policy="now")

    def end(self, finished: bool) -> None:
        """Finish the run, unless it is the user's own."""
        if self.own:
            self.run.finish(exit_code=0 if finished else 1)
