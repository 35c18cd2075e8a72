"""What each library wrote, read back by that library, of runs that were stopped and went on."""

from __future__ import annotations

import importlib
import json
import math
import os
import struct
import sys
from collections import Counter
from importlib.util import find_spec

import pytest

from gateon.cli import main
from gateon.runs import tracked
from gateon.runs.progress import Quiet
from gateon.runs.specified import run_specification
from gateon.tracking.choosing import TRACKERS
from specified import specified

SMALL = {"data": "mnist-5k", "tasks": 3, "hidden": (12,), "steps": 10, "batch": 30, "threads": 1}
# All but TensorBoard are large and slow to start: make track sees to it that they are tested.
ALL = bool(os.environ.get("GATEON_TRACKERS"))
pytestmark = pytest.mark.usefixtures("few_digits")


class Killed(BaseException):
    """What no run can save itself from."""


class Kill(Quiet):
    def step(self, task, step, loss):
        if (task, step) == (1, 7):
            raise Killed


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Everything the libraries keep lies in the test's own directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tracked, "OFTEN", 0.0)
    for name in ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    if find_spec("trackio"):
        importlib.import_module("trackio")  # it looks only once where to keep things
        for name, module in list(sys.modules.items()):
            for place in ("TRACKIO_DIR", "ARTIFACTS_DIR", "MEDIA_DIR"):
                if name.startswith("trackio") and hasattr(module, place):
                    monkeypatch.setattr(module, place, tmp_path / "trackio" / place)


def needs(name):
    if not ALL and (name != "tensorboard" or find_spec(name) is None):
        pytest.skip(f"make track installs {name} and tests it")


def read_tensorboard(folder, known):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    read.Reload()
    tags = read.Tags()
    told = [(tag, one.step, one.value) for tag in tags["scalars"] for one in read.Scalars(tag)]
    texts = {tag: read.Tensors(tag)[0].tensor_proto.string_val[0] for tag in tags["tensors"]}
    settings = json.loads(texts["settings/text_summary"])
    assert texts["artefacts/record.json/text_summary"].decode() == str(folder / "record.json")
    return told, settings, None


def read_mlflow(folder, known):
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    (experiment,) = (e for e in client.search_experiments() if e.name == "gateon")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_id, run.info.status) == (known["id"], "FINISHED")
    assert run.info.run_name == folder.name
    history = {name: client.get_metric_history(known["id"], name) for name in run.data.metrics}
    told = [(name, one.step, one.value) for name, of in history.items() for one in of]
    assert {one.path for one in client.list_artifacts(known["id"])} == {"record.json"}
    path = client.download_artifacts(known["id"], "record.json", str(folder))
    return told, run.data.params, open(path).read()


def leveldb_records(path):
    """The records of a log as LevelDB writes it: blocks of 32 KiB, pieces with a header of 7 bytes."""
    held, whole, place = path.read_bytes(), b"", 7
    while place + 7 <= len(held):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", held, place)
        whole = (whole if kind in (3, 4) else b"") + held[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield whole


def read_wandb(folder, known):
    from wandb.proto import wandb_internal_pb2

    told, settings, files = [], {}, {}
    for path in sorted(folder.parent.glob("wandb/offline-run-*/*.wandb")):
        assert path.stem == f"run-{known['id']}"  # as wandb sync joins them
        for content in leveldb_records(path):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(content)
            if record.WhichOneof("record_type") == "history":
                row = {
                    item.key or item.nested_key[0]: json.loads(item.value_json)
                    for item in record.history.item
                }
                names = [name for name in row if name[0] != "_" and name != "batches"]
                told += [(name, row["batches"], row[name]) for name in names]
            if record.WhichOneof("record_type") == "run":
                items = record.run.config.update
                settings |= {item.key: json.loads(item.value_json) for item in items if item.key}
                assert record.run.display_name == folder.name
        files |= {file.name: file for file in path.parent.glob("files/*.json")}
    return told, settings, files["record.json"].read_text()


def read_trackio(folder, known):
    from trackio.sqlite_storage import SQLiteStorage

    assert SQLiteStorage.get_runs("gateon") in ([known["id"]], [{"name": known["id"]}])
    rows = SQLiteStorage.get_logs("gateon", known["id"])
    told = [
        (name, row["step"], value)
        for row in rows
        for name, value in row.items()
        if name not in ("step", "timestamp", "log_id")
    ]
    settings = SQLiteStorage.get_run_config("gateon", known["id"])
    return told, settings, None


READ = {
    "tensorboard": read_tensorboard,
    "mlflow": read_mlflow,
    "wandb": read_wandb,
    "trackio": read_trackio,
}


def test_every_tracker_is_read_back():
    assert READ.keys() == TRACKERS.keys()


@pytest.mark.parametrize("name", TRACKERS)
def test_what_was_written_is_what_the_record_says(tmp_path, name):
    needs(name)
    asked, folder = specified("permuted-mnist", **SMALL), tmp_path / "run"
    with pytest.raises(Killed):
        run_specification(asked, folder, trackers=[name], progress=Kill())
    record = run_specification(asked, folder)  # goes on with its tracker
    plain = run_specification(asked, tmp_path / "plain")
    assert (record.accuracy, record.availability) == (plain.accuracy, plain.availability)
    known = json.loads((folder / tracked.TRACKING).read_text())[name]
    told, settings, kept = READ[name](folder, known)
    assert max(Counter((figure, step) for figure, step, _ in told).values()) == 1
    found = {(figure, step): value for figure, step, value in told}
    for k in range(3):
        for figure, value in tracked.measured(record, k).items():
            assert found.pop((figure, 10 * (k + 1))) == pytest.approx(value, rel=1e-6, abs=1e-7)
        assert found.pop(("context", 10 * k + 1)) == k
    losses = {step: value for (figure, step), value in found.items() if figure == "loss"}
    assert len(losses) == len(found) and {10, 16, 20, 30} <= losses.keys() <= set(range(1, 31))
    assert all(map(math.isfinite, losses.values()))
    assert float(settings["training.steps"]) == 10 and settings["method.name"] == "n-gateon"
    assert kept in (None, (folder / "record.json").read_text())


def test_the_program_hands_the_page_over_as_well(tmp_path, capsys):
    needs("mlflow")
    from mlflow.tracking import MlflowClient

    words = "permuted-mnist --data mnist-5k --tasks 1 --steps 3 --batch 20 --hidden 8 --threads 1"
    assert main(["run", *words.split(), "--out", "o", "--track", "mlflow", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    known = json.loads((tmp_path / "o" / tracked.TRACKING).read_text())["mlflow"]
    found = {one.path for one in MlflowClient().list_artifacts(known["id"])}
    assert found == {"record.json", "report.html"}


def test_a_comparison_is_a_group_of_runs(tmp_path, capsys):
    needs("tensorboard")
    words = "permuted-mnist --data mnist-5k --tasks 1 --steps 3 --batch 20 --hidden 8 --threads 1"
    methods = ["--methods", "n-gateon,finetune", "--track", "tensorboard", "--quiet"]
    assert main(["compare", *words.split(), *methods, "--out", "c"]) == 0
    for method in ("n-gateon", "finetune"):
        folder = tmp_path / "c" / f"{method}-0"
        told, settings, _ = read_tensorboard(folder.relative_to(tmp_path), {})
        assert settings["method.name"] == method and ("tasks", 3, 1.0) in told


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_run_of_the_users_own_is_the_one_that_is_logged_to(tmp_path, name):
    needs(name)
    asked = specified("permuted-mnist", **SMALL | {"tasks": 1})
    if name == "mlflow":
        import mlflow

        with mlflow.start_run() as own:
            run_specification(asked, tmp_path / "run", trackers=[name])
            status = mlflow.tracking.MlflowClient().get_run(own.info.run_id)
        assert status.info.status == "RUNNING" and status.data.metrics["tasks"] == 1
        known = own.info.run_id
    else:
        import wandb

        own = wandb.init(project="mine")
        run_specification(asked, tmp_path / "run", trackers=[name])
        own.log({"after": 1})  # it is not finished
        known = own.id
        assert own.summary["tasks"] == 1
        own.finish()
    held = json.loads((tmp_path / "run" / tracked.TRACKING).read_text())
    assert held[name]["id"] == known


def test_a_server_that_is_not_there_costs_one_warning_and_little_time(tmp_path, monkeypatch):
    needs("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    asked = specified("permuted-mnist", **SMALL | {"tasks": 1})
    with pytest.warns(RuntimeWarning, match="The tracker mlflow failed .*goes on without it"):
        record = run_specification(asked, tmp_path / "run", trackers=["mlflow"])
    assert len(record.accuracy) == 1
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ
