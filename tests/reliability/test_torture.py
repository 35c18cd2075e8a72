"""Short runs of what `make torture` and benchmarks/fuzz.py do at length."""

from __future__ import annotations

import ast
import importlib.util
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


def test_a_run_killed_at_random_moments_leaves_what_an_uninterrupted_one_leaves():
    words = ["torture.py", "--kills", "4", "--steps", "25", "--variants", "n-gateon", "--dry"]
    done = subprocess.run(
        [sys.executable, *words], cwd=BENCHMARKS, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = ast.literal_eval(done.stdout)
    assert found["kills"] == 4 and found["runs"] >= 1 and found["runs that differ"] == 0


@pytest.fixture(scope="module")
def fuzz():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        found = importlib.util.spec_from_file_location("fuzz", BENCHMARKS / "fuzz.py")
        module = importlib.util.module_from_spec(found)
        sys.modules["fuzz"] = module  # where dataclasses look for it
        found.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    previous = signal.signal(signal.SIGALRM, module._too_long)
    yield module
    signal.signal(signal.SIGALRM, previous)


def test_mutated_files_are_read_or_refused_in_a_sentence(fuzz, tmp_path):
    before = fuzz.megabytes()
    for target in fuzz.targets():
        draw = random.Random(target.name)
        path = tmp_path / target.name
        path.parent.mkdir(exist_ok=True)
        outcomes = {fuzz.attempt(target, path, sample) for sample in target.samples}
        assert outcomes == {"read"}, target.name
        for _ in range(60):
            content = fuzz.mutated(draw.choice(target.samples), draw)
            assert fuzz.attempt(target, path, content) in ("read", "refused"), (
                target.name,
                content,
            )
        path.unlink()
    assert fuzz.megabytes() - before < fuzz.MEGABYTES


def test_the_fuzzer_sees_what_goes_wrong(fuzz, tmp_path):
    """It would tell an exception of another kind, a message that names nothing, a hang, and a wrong state."""

    def raising(error):
        def read(path):
            raise error

        return read

    def hangs(path):
        while True:
            pass

    path = tmp_path / "x"
    assert (
        fuzz.attempt(fuzz.Target("x", [], raising(IndexError("no"))), path, b"") == "IndexError: no"
    )
    assert (
        fuzz.attempt(fuzz.Target("x", [], raising(ValueError("no"))), path, b"")
        == "does not name the file: no"
    )
    assert (
        fuzz.attempt(fuzz.Target("x", [], lambda path: 1, exact=2), path, b"")
        == "read, but not as it was written"
    )
    fuzz.SECONDS, seconds = 0.05, fuzz.SECONDS
    try:
        assert fuzz.attempt(fuzz.Target("x", [], hangs), path, b"") == "takes too long"
    finally:
        fuzz.SECONDS = seconds
