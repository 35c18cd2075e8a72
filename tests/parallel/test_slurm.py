"""The script for SLURM, with an srun and an scontrol that do what the script asks of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from states import assert_equal, flat

import gateon
from gateon.runs.folder import checkpoints
from gateon.storage import checkpoint

SCRIPT = Path(__file__).parents[2] / "examples" / "slurm.sh"
# Starts the tasks with their numbers, passes signals on, and ends with the largest exit code.
SRUN = """
import os, signal, subprocess, sys
tasks = [
    subprocess.Popen(sys.argv[2:], env={**os.environ, "SLURM_PROCID": str(n), "SLURM_LOCALID": str(n)})
    for n in range(int(os.environ["SLURM_NTASKS"]))
]
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, _: [task.send_signal(number) for task in tasks])
open("srun.pid", "w").write(str(os.getpid()))
sys.exit(max(task.wait() for task in tasks))
"""
SCONTROL = """
import sys
if sys.argv[1] == "requeue":
    open("requeued", "a").write(sys.argv[2])
else:
    print("127.0.0.1")
"""
GATEON = "import sys; from gateon.cli import main; sys.exit(main())"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A directory with the commands of a cluster on PATH, and the environment of a job."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("gateon", GATEON)):
        (commands / name).write_text(f"#!{sys.executable}\n{text}")
        (commands / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(gateon.__file__).parents[1]))
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "here", "SLURM_NTASKS": "2"}
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def begun(out):
    words = ["split-mnist", "--data", "mnist-5k", "--hidden", "8", "--batch", "20"]
    budget = ["--steps", "60", "--evaluate", "last", "--threads", "1"]
    return subprocess.Popen(
        ["bash", SCRIPT, *words, *budget, "--out", out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_job_that_is_warned_is_saved_requeued_and_goes_on(cluster):
    job = begun("warned")
    lines = iter(job.stderr)
    assert any("task 1/5" in line for line in lines)
    os.kill(int(Path("srun.pid").read_text()), signal.SIGUSR1)
    rest = "".join(lines)
    job.communicate()
    assert job.returncode == 75, rest
    assert "Stopped and saved." in rest
    assert Path("requeued").read_text() == os.environ["SLURM_JOB_ID"]
    assert not Path("warned/record.json").exists()
    os.environ["SLURM_JOB_ID"] += "1"  # another port
    for out in ("warned", "undisturbed"):
        job = begun(out)
        _, err = job.communicate()
        assert job.returncode == 0, err
        os.environ["SLURM_JOB_ID"] += "1"
    assert_equal(*(last(Path(out)) for out in ("warned", "undisturbed")))


def last(out):
    state = checkpoint.load(checkpoints(out)[0])
    del state["times"]
    return flat(state)
