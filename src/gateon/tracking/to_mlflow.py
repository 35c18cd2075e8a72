"""MLflow: a run in an experiment, on the server or in the store that its users have chosen."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .tracker import Started

__all__ = ["MLflow"]

EXPERIMENT = "gateon"  # unless MLFLOW_EXPERIMENT_NAME says another
FORBIDDEN = re.compile(r"[^\w\-. :/]", re.ASCII)  # in names of metrics
LONGEST = 6000  # characters of a parameter
AT_ONCE = 100  # parameters; a server takes no more in one call
# How patient it is unless its users say: by default a server that is gone costs minutes a call.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


class MLflow:
    """Logs to MLFLOW_TRACKING_URI, in the experiment MLFLOW_EXPERIMENT_NAME or gateon.

    If a run is active, as in `with mlflow.start_run():`, that is the one it logs to.
    """

    name = "mlflow"

    def start(self, run: Started) -> str:
        """Create the run with its parameters, or go on with it."""
        import mlflow
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        active = mlflow.active_run()
        self.own = active is None
        with _patience():
            self.client = MlflowClient()
            if run.id is not None:
                self.id = run.id
                self.client.update_run(self.id, status="RUNNING")
                return self.id
            if active is not None:
                self.id = active.info.run_id
            else:
                tags = {"gateon.group": run.group} if run.group else {}
                made = self.client.create_run(self._experiment(), tags=tags, run_name=run.name)
                self.id = made.info.run_id
            found = [Param(key, str(value)[:LONGEST]) for key, value in run.settings.items()]
            for first in range(0, len(found), AT_ONCE):
                self.client.log_batch(self.id, params=found[first : first + AT_ONCE])
        return str(self.id)

    def _experiment(self) -> Any:
        given = os.environ.get("MLFLOW_EXPERIMENT_ID")
        if given:
            return given
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        found = self.client.get_experiment_by_name(name)
        return self.client.create_experiment(name) if found is None else found.experiment_id

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log them in one call."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        found = [Metric(FORBIDDEN.sub("_", key), v, now, step) for key, v in values.items()]
        with _patience():
            for first in range(0, len(found), 10 * AT_ONCE):
                self.client.log_batch(self.id, metrics=found[first : first + 10 * AT_ONCE])

    def artefact(self, path: Path) -> None:
        """Log the file."""
        with _patience():
            self.client.log_artifact(self.id, str(path))

    def end(self, finished: bool) -> None:
        """Say how it ended, unless the run is the user's own."""
        if self.own:
            with _patience():
                self.client.set_terminated(self.id, "FINISHED" if finished else "KILLED")


@contextmanager
def _patience() -> Iterator[None]:
    """Fewer retries while something is logged, unless the user has chosen."""
    before = {name: os.environ.get(name) for name in PATIENCE}
    chosen = {name: value for name, value in PATIENCE.items() if before[name] is None}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name in chosen:
            os.environ.pop(name, None)
