"""Run the tests marked `numeric` as other processors would round: a few combinations for `make test`, all for `make roundings`.

The variables choose which kernels torch and the libraries below it take. A combination stands for a
processor that has no others.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

TESTS = Path(__file__).parent
VALUES = {
    "ATEN_CPU_CAPABILITY": ("default", "avx2", "avx512"),
    "MKL_CBWR": (None, "COMPATIBLE", "AVX2"),  # None: what the processor has
    "ONEDNN_MAX_CPU_ISA": ("SSE41", "AVX2", "AVX512_CORE"),
    "OMP_NUM_THREADS": ("1", "2"),
}
# What this processor has, with one thread, is what `make test` runs before: where it has AVX-512,
# every value comes once.
FEW = [("avx2", "AVX2", "AVX2", "2"), ("default", "COMPATIBLE", "SSE41", "1")]
# Threads that wait by spinning take the cores from those that work, where there are more of them
# than cores.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}


def main() -> int:
    """Zero if all tests pass under all combinations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every combination, one after the other")
    everything = parser.parse_args().all
    wanted = [
        c
        for c in (product(*VALUES.values()) if everything else FEW)
        if c[0] != "avx512" or _has_avx512()
    ]
    with ThreadPoolExecutor(1 if everything else len(wanted)) as pool:
        return int(any(list(pool.map(_failed, wanted))))


def _failed(combination: tuple[str | None, ...]) -> bool:
    chosen = {
        name: value for name, value in zip(VALUES, combination, strict=True) if value is not None
    }
    others = {name: value for name, value in os.environ.items() if name not in VALUES}
    began = time.monotonic()
    files = sorted(
        str(path)
        for path in TESTS.rglob("test_*.py")
        if "mark.numeric" in path.read_text(encoding="utf-8")
    )
    words = [sys.executable, "-m", "pytest", "-m", "numeric", "-p", "no:cacheprovider", *files]
    done = subprocess.run(
        words, cwd=TESTS.parent, env=others | chosen | WAITING, capture_output=True, text=True
    )
    said = " ".join(f"{name}={value}" for name, value in chosen.items())
    print(
        f"{said}: {'failed' if done.returncode else 'passed'} in {time.monotonic() - began:.0f} s",
        flush=True,
    )
    if done.returncode:
        print(done.stdout + done.stderr, flush=True)
    return done.returncode != 0


def _has_avx512() -> bool:
    """Torch takes its word for it, and would run instructions that the processor does not have."""
    try:
        return "avx512f" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
